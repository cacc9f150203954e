// Workers, each asked once the one before has answered; with `at-once`, all draw random numbers at the same time.
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads"), crypto = require("crypto");
const atOnce = process.argv[2] === "at-once";
if (isMainThread) {
  const answer = (number) => new Promise((done) => new Worker(__filename, { workerData: number, argv: process.argv.slice(2) }).on("message", done));
  (async () => {
    const lines = atOnce ? await Promise.all([0, 1, 2].map(answer)) : [await answer(0), await answer(1), await answer(2)];
    console.log(lines.join("\n"));
  })();
} else {
  setTimeout(() => parentPort.postMessage([workerData, Date.now(), crypto.randomUUID(), Math.random()].join(" ")), 50 * workerData);
}
