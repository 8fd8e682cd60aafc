// Saves reloads, and nothing more: every page is whole without it, and every action is a form.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("scripted");

  // --- live: a word from the server, and htmx fetches this page's fresh part -------------------------
  const FRESH_MILLISECONDS_MIN = 2000;
  const state = document.querySelector("[data-live]");
  let stream = null;
  let freshAt = Date.now();
  let waiting = null;

  function refresh() {
    clearTimeout(waiting);
    waiting = null;
    freshAt = Date.now();
    document.body.dispatchEvent(new CustomEvent("outbox:tick"));
  }

  function hear() {
    const rest = freshAt + FRESH_MILLISECONDS_MIN - Date.now();
    if (rest <= 0) refresh();
    else if (waiting === null) waiting = setTimeout(refresh, rest);
  }

  function listen() {
    if (stream !== null || !document.getElementById("fresh")) return;
    stream = new EventSource(state.dataset.live);
    stream.addEventListener("tick", hear);
    stream.addEventListener("open", () => { state.hidden = false; state.classList.remove("lost"); });
    stream.addEventListener("error", () => state.classList.add("lost"));
  }

  function leave() {
    clearTimeout(waiting);
    waiting = null;
    if (stream !== null) stream.close();
    stream = null;
  }

  if (state && window.EventSource) {
    listen();
    document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
    window.addEventListener("pagehide", leave);
    window.addEventListener("pageshow", (event) => { if (event.persisted) listen(); });
  }

  // A page that cannot be had now leaves the one that is there.
  document.body.addEventListener("htmx:before:swap", (event) => {
    const response = event.detail.ctx && event.detail.ctx.response;
    if (response && response.status >= 400) event.preventDefault();
  });

  // --- ids to the clipboard --------------------------------------------------------------------------
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button || !navigator.clipboard) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    button.classList.add("copied");
    setTimeout(() => button.classList.remove("copied"), 1200);
  });
  if (!navigator.clipboard) root.classList.add("without-clipboard");

  // --- the field that finds, by one key --------------------------------------------------------------
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) return;
    event.preventDefault();
    document.getElementById("find").focus();
  });

  // --- choosing from a list --------------------------------------------------------------------------
  const all = document.querySelector("[data-choose-all]");
  if (all) {
    const boxes = [...document.querySelectorAll("input[name=event]")];
    const told = document.querySelector("[data-chosen]");
    const buttons = [...document.querySelectorAll("[data-needs-choice]")];
    const show = () => {
      const chosen = boxes.filter((box) => box.checked).length;
      all.checked = chosen === boxes.length;
      all.indeterminate = chosen > 0 && chosen < boxes.length;
      told.hidden = chosen === 0;
      told.textContent = `${chosen} chosen`;
      for (const button of buttons) button.disabled = chosen === 0;
    };
    all.addEventListener("change", () => { for (const box of boxes) box.checked = all.checked; show(); });
    for (const box of boxes) box.addEventListener("change", show);
    show();
  }
})();
