// The docs site: what a keyboard can scroll can be reached; buttons of code and empty corners of tables are no landmarks.
const reachable = () => {
  for (const scrolled of document.querySelectorAll("pre > code, .md-typeset__scrollwrap")) scrolled.tabIndex = 0;
  for (const plain of document.querySelectorAll("nav.md-code__nav, th:empty")) plain.setAttribute("role", "none");
};
reachable();
new MutationObserver(reachable).observe(document.body, { childList: true, subtree: true });
