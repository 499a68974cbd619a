// Shows the page's changing part again every few seconds, while somebody looks.
const place = document.getElementById("live");
let tag = null;
async function refresh() {
  if (document.hidden) return;
  const address = new URL(location.href);
  address.searchParams.set("part", "1");
  try {
    const answer = await fetch(address, { headers: tag ? { "If-None-Match": tag } : {} });
    place.classList.toggle("stale", answer.status >= 400);
    if (answer.status !== 200) return;
    const text = await answer.text();
    const end = text.indexOf("\n");
    replace(text.slice(end + 1));
    document.title = text.slice(0, end).replace(/&[^;]+;/g, " ");
    tag = answer.headers.get("ETag");
  } catch { place.classList.add("stale"); } // the server is away: the next time may be better
}
// Puts the new part in place of the old one; what has the focus and how far tables are scrolled stay.
function replace(html) {
  const stops = () => [...place.querySelectorAll("a, summary, [tabindex]")];
  const tables = () => [...place.querySelectorAll(".scroll")];
  const focused = stops().indexOf(document.activeElement);
  const scrolled = tables().map((table) => table.scrollLeft);
  place.innerHTML = html;
  tables().forEach((table, index) => { table.scrollLeft = scrolled[index] ?? 0; });
  if (focused >= 0) stops()[focused]?.focus({ preventScroll: true });
}
setInterval(refresh, 3000);
