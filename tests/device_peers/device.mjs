// As device.py: the part that the devices share that run on Node.

import { createInterface } from 'node:readline';

export const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);

const until = (time) => new Promise((resolve) => { setTimeout(resolve, Math.max(time - performance.now(), 1)); });

/** Follows orders in lines of JSON; `put` gives a number with its time to both channels, and says whether it could. */
export async function serve(put) {
  const emitted = [];
  let isStopping = false;
  const emitOne = async (number) => {
    const time = Date.now();
    while (!put(number, time)) {
      await until(performance.now() + 20);
    }
    emitted.push([number, time]);
  };
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    if ('emit' in order) {
      void (async () => {
        let due = performance.now();
        isStopping = false;
        for (let number = order.first; !isStopping; number += 1) {
          await emitOne(number);
          due += order.interval * 1000;
          await until(due);
        }
        say({ done: true });
      })();
    } else if ('stop' in order) {
      isStopping = true;
    } else if ('value' in order) {
      await emitOne(order.value);
      say({ done: true });
    } else {
      say({ emitted });
    }
  }
  process.exit(0);
}
