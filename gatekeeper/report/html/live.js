// Of a run under way: asks its own server for a newer page, and keeps what was opened and chosen.
(() => {
  const kept = JSON.parse(sessionStorage.getItem("kept") || "{}");
  const details = [...document.querySelectorAll("details")];
  const places = details.map((one) => (one.closest("section") || document.body).querySelectorAll("details"));
  const keys = details.map((one, at) => `${one.closest("section")?.querySelector("h2").id} ${[...places[at]].indexOf(one)}`);
  details.forEach((one, at) => { one.open = (kept.open || []).includes(keys[at]); });
  for (const [id, value] of Object.entries(kept.chosen || {})) {
    const select = document.getElementById(id);
    if (!select || ![...select.options].some((one) => one.value === value)) continue;
    select.value = value;
    select.dispatchEvent(new Event("change"));
  }
  let mine = null;
  const look = async () => {
    try {
      const now = await (await fetch("version")).text();
      if (mine === null) mine = now;
      else if (mine !== now) {
        const chosen = Object.fromEntries([...document.querySelectorAll("select")].map((one) => [one.id, one.value]));
        sessionStorage.setItem("kept", JSON.stringify({ open: keys.filter((_, at) => details[at].open), chosen }));
        location.reload();
        return;
      }
    } catch {
      document.querySelector("h1 span:last-child").textContent += ". No connection: gatekeeper has ended, or cannot be reached";
      return;
    }
    setTimeout(look, 2000);
  };
  look();
})();
