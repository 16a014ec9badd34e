// A Sparkplug B edge node of sparkplug-client: A is a metric of the node, B and Set are metrics of a device, and data name B by its
// alias alone.

import { createRequire } from 'node:module';
import { say, serve } from './device.mjs';

const sparkplug = createRequire(import.meta.url)('sparkplug-client');
const { port } = JSON.parse(process.argv[2]);
const client = sparkplug.newClient({
  serverUrl: `tcp://127.0.0.1:${port}`, username: 'js', password: 'js', groupId: 'plant', edgeNode: 'js', clientId: 'js',
  version: 'spBv1.0', keepalive: 60, mqttOptions: { reconnectPeriod: 500 },
});
const node = { a: { name: 'A', type: 'Int64', value: -1, timestamp: 1 } };
const drive = {
  b: { name: 'B', alias: 7, type: 'Double', value: -1, timestamp: 1 },
  set: { name: 'Set', type: 'Float', value: 0, timestamp: 1 },
};
let isConnected = false;

function birth() {
  const timestamp = Date.now();
  const rebirth = { name: 'Node Control/Rebirth', type: 'Boolean', value: false };
  client.publishNodeBirth({ timestamp, metrics: [rebirth, node.a] });
  client.publishDeviceBirth('drive', { timestamp, metrics: Object.values(drive) });
  isConnected = true;
}

client.on('error', () => undefined);
client.on('close', () => { isConnected = false; });
client.on('birth', birth);
client.on('ncmd', ({ metrics }) => {
  if (metrics.some(({ name, value }) => name === 'Node Control/Rebirth' && value)) {
    birth();
  }
});
client.on('dcmd', (_, { metrics }) => {
  for (const { value } of metrics) {
    drive.set = { ...drive.set, value, timestamp: Date.now() };
    client.publishDeviceData('drive', { timestamp: Date.now(), metrics: [drive.set] });
    say({ commanded: value });
  }
});

await serve((number, timestamp) => {
  if (!isConnected) {
    return false;
  }
  node.a = { ...node.a, value: number, timestamp };
  drive.b = { ...drive.b, value: number, timestamp };
  client.publishNodeData({ timestamp, metrics: [node.a] });
  const { name: _, ...byAlias } = drive.b;
  client.publishDeviceData('drive', { timestamp, metrics: [byAlias] });
  return true;
});
