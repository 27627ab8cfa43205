// A script of the old kind: modules are not loaded from a page that was opened as a file.
if (location.protocol === "file:") {
  const message = document.getElementById("broken");
  message.textContent = "Browsers run this page only from a web server. In this folder, run 'python -m http.server', and open http://localhost:8000.";
  message.hidden = false;
  document.getElementById("model-line").textContent = "";
}
