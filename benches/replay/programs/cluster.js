const cluster = require("cluster"), http = require("http"), crypto = require("crypto");
if (cluster.isPrimary) {
  let up = 0;
  for (let number = 0; number < 2; number++) cluster.fork();
  cluster.on("listening", async () => {
    if (++up < 2) return;
    const lines = [];
    for (let number = 0; number < 4; number++) lines.push(await (await fetch("http://127.0.0.1:8123/")).text());
    // Which of them is up first, and so gets the first one, is a matter of chance.
    console.log(lines.sort().join("\n"));
    for (const worker of Object.values(cluster.workers)) worker.kill();
  });
} else {
  http.createServer((_, answer) => answer.end(`${cluster.worker.id} ${Date.now()} ${crypto.randomUUID()}`)).listen(8123, "127.0.0.1");
}
