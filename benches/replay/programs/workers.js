const { Worker, isMainThread, parentPort, workerData } = require("worker_threads"), crypto = require("crypto");
if (isMainThread) {
  const results = [0, 1, 2].map((number) => new Promise((done) => new Worker(__filename, { workerData: number }).on("message", done)));
  Promise.all(results).then((lines) => console.log(lines.join("\n")));
} else {
  setTimeout(() => parentPort.postMessage([workerData, Date.now(), crypto.randomUUID(), Math.random()].join(" ")), 50 * workerData);
}
