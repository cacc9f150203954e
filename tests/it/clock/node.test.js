// Reads the monotonic clock as programs do in Node, between turns of its event loop.
const { test } = require('node:test');
const fs = require('node:fs');

test('timers', async () => {
  console.time('files');
  for (let turn = 0; turn < 5; turn++) {
    const begun = performance.now();
    await new Promise((done) => setTimeout(done, turn));
    await fs.promises.readFile(__filename);
    console.log(turn, performance.now() - begun, process.hrtime(), process.hrtime.bigint());
  }
  console.timeEnd('files');
});
