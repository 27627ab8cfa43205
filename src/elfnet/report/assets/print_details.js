"use strict";
// Opens all folded parts before printing and closes them again afterwards.
{
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = [...document.querySelectorAll("details:not([open])")];
    unfolded.forEach((details) => (details.open = true));
  });
  addEventListener("afterprint", () => unfolded.forEach((details) => (details.open = false)));
}
