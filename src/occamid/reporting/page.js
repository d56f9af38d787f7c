(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("figures").textContent);
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var narrow = window.matchMedia("(max-width: 760px)");

  var mouse = window.matchMedia("(hover: hover)");

  // "@accent" under a key that ends in "color" stands for the page's --accent, light or dark
  function painted(value, key, style) {
    if (Array.isArray(value)) {
      return value.map(function (v) { return painted(v, key, style); });
    }
    if (value && typeof value === "object") {
      var copy = {};
      Object.keys(value).forEach(function (k) { copy[k] = painted(value[k], k, style); });
      return copy;
    }
    if (typeof value === "string" && value[0] === "@" && /color$/.test(key)) {
      return style.getPropertyValue("--" + value.slice(1)).trim();
    }
    return value;
  }

  function draw() {
    var style = getComputedStyle(document.documentElement);
    document.querySelectorAll("[data-figure]").forEach(function (place) {
      var figure = painted(figures[place.dataset.figure], "", style);
      figure.data.forEach(function (trace) { trace.x = trace.x || figure.x; });
      figure.layout.font.family = getComputedStyle(document.body).fontFamily;
      figure.layout.dragmode = narrow.matches ? false : "zoom"; // a finger scrolls the page
      Plotly.react(place, figure.data, figure.layout, {
        responsive: true, displaylogo: false, displayModeBar: mouse.matches ? "hover" : false,
        modeBarButtons: [["toImage"], ["zoom2d", "pan2d"]]
      });
    });
  }

  dark.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
  draw();
})();
