"use strict";
// Dollars for one million tasks and for a month, by the same arithmetic as thunderagent.cost: units times list price.

function costOfMillion(task, prices) {
  const perMillion = {
    writes: task.writeUnits * prices.writeUnitsPerMillion,
    reads: task.readUnits * prices.readUnitsPerMillion,
    compute: ((task.milliseconds * task.memoryMib) / (1024 * 1000)) * prices.gibSeconds * 1e6,
    invocations: (1 / task.tasksPerBatch) * prices.invocationsPerMillion,
    api: (1 / task.tasksPerRequest) * prices.apiRequestsPerMillion,
    events: task.eventsPerTask * prices.eventsPerMillion,
  };
  perMillion.total = Object.values(perMillion).reduce((sum, each) => sum + each, 0);
  return perMillion;
}

function start() {
  const form = document.getElementById("calculator");
  if (!form) return;
  const { prices } = JSON.parse(document.getElementById("prices").textContent);
  const show = () => {
    const task = {};
    for (const input of form.querySelectorAll("input")) task[input.name] = Number(input.value);
    const cost = costOfMillion(task, prices);
    for (const [name, dollars] of Object.entries(cost)) {
      document.getElementById(`cost-${name}`).textContent = `$${dollars.toFixed(2)}`;
    }
    const month = (cost.total * task.millionsPerMonth).toFixed(2);
    document.getElementById("cost-month").textContent = `$${month}`;
  };
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
}

if (typeof document === "undefined") module.exports = { costOfMillion };
else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
