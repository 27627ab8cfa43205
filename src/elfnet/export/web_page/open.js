// Starts to load runtime and network before the other modules of the page are there.

import { openModel } from "./model.js";

export const opened = openModel();
opened.catch(() => null); // whoever waits for it shows the error
