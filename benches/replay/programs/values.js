// Timers, clocks, randomness.
const crypto = require("crypto"), fs = require("fs");
const lines = [Date.now(), performance.now(), Math.random(), crypto.randomUUID(), crypto.randomBytes(8).toString("hex"), process.pid];
lines.push(String(process.hrtime.bigint()));
const keys = crypto.generateKeyPairSync("ec", { namedCurve: "P-256" });
lines.push(keys.publicKey.export({ type: "spki", format: "pem" }));
setTimeout(() => lines.push("300 " + performance.now()), 300);
setTimeout(() => lines.push("100 " + Date.now()), 100);
setImmediate(() => lines.push("immediate"));
setTimeout(() => { console.log(lines.join("\n")); fs.writeFileSync("out/values.txt", lines.join("\n")); }, 500);
