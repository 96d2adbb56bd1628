/* The order of search results: a name's own page, guides, other names, and last what few look for. */
"use strict";

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
    return page.includes("/") ? points : points + 40;
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
