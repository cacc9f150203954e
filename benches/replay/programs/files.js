// A program of some length: many files written, read and searched, some work in between.
const crypto = require("crypto"), fs = require("fs"), zlib = require("zlib");
const sum = crypto.createHash("sha256");
for (let number = 0; number < 500; number++) {
  const values = Array.from({ length: 100 }, () => Math.random());
  fs.writeFileSync(`out/${number}.json`, JSON.stringify({ id: crypto.randomUUID(), time: Date.now(), values }));
}
for (const name of fs.readdirSync("out").sort()) {
  const text = fs.readFileSync(`out/${name}`, "utf8");
  sum.update(zlib.deflateSync(text)).update(JSON.parse(text).values.sort().join());
}
console.log(sum.digest("hex"), performance.now());
