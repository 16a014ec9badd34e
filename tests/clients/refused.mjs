// Sends bodies that the service refuses before it has read them, with fetch, and prints the statuses that arrive.
//
//     node refused.mjs METHOD URL BYTES TIMES [HEADER=VALUE ...]

const [method, url, size, times, ...headers] = process.argv.slice(2);
const body = new Uint8Array(Number(size));
for (let turn = 0; turn < Number(times); turn++) {
  try {
    const sent = Object.fromEntries(headers.map((header) => header.split(/=(.*)/s, 2)));
    const answer = await fetch(url, { method, body, headers: sent });
    await answer.arrayBuffer();
    console.log(answer.status);
  } catch (error) {
    console.log(`${error}: ${error.cause}`);
  }
}
