/* The order of search results: a name's own page, guides, other names, and last what few look for. */
"use strict";

// Pages that few look for: how the library is made and checked, and long lists.
const SELDOM =
  /^(contributing|differences|gpu|journey|performance.*|same_bits|scaling|security|trust|twin)$/;

var Scorer = {
  score: (result) => {
    const [page, , , , score, , kind] = result;
    const query = new URLSearchParams(window.location.search).get("q") || "";
    const name = page.split("/").pop().split(".").pop().toLowerCase();
    const points = kind === "index" ? Math.min(score, 20) : score;
    if (page.startsWith("api/generated/tfopt.") && name === query.trim().toLowerCase()) {
      return points + 100;
    }
    if (page === "changelog" || page.includes("tfopt_ref")) return points - 40;
    if (page.includes("/")) return points;
    return points + (SELDOM.test(page) ? 30 : 40);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
