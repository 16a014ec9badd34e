// An OPC UA server of node-opcua.

import {
  DataType, MessageSecurityMode, OPCUACertificateManager, OPCUAServer, SecurityPolicy, ServerCapabilities, StatusCodes,
} from 'node-opcua';
import { say, serve } from './device.mjs';

// With a user, connections are encrypted, and others are refused.
const { port, folder, user } = JSON.parse(process.argv[2]);
const access = user && {
  securityPolicies: [SecurityPolicy.Basic256Sha256],
  securityModes: [MessageSecurityMode.SignAndEncrypt],
  allowAnonymous: false,
  userManager: { isValidUser: (name, password) => name === user.name && password === user.password },
};
const server = new OPCUAServer({
  port,
  hostname: '127.0.0.1',
  // Each change is a sample; otherwise those within 50 ms are one.
  serverCapabilities: new ServerCapabilities({ minSupportedSampleRate: 0 }),
  ...access,
  serverCertificateManager: new OPCUACertificateManager({ rootFolder: `${folder}/node-opcua`, automaticallyAcceptUnknownCertificate: true }),
});
await server.initialize();
const namespace = server.engine.addressSpace.registerNamespace('urn:peers');
const peer = namespace.addObject({ browseName: 'Peer', nodeId: 's=Peer', organizedBy: server.engine.addressSpace.rootFolder.objects });
const variable = (name, dataType, value) => namespace.addVariable({
  componentOf: peer, browseName: name, nodeId: `s=${name}`, dataType, value: { dataType, value }, minimumSamplingInterval: 0,
});
const a = variable('A', DataType.Int32, -1);
const b = variable('B', DataType.Double, -1);
const set = variable('Set', DataType.Float, 0);
set.on('value_changed', ({ value }) => {
  if (value.value) {
    say({ commanded: value.value });
  }
});
await server.start();
await serve((number, time) => {
  a.setValueFromSource({ dataType: DataType.Int32, value: number }, StatusCodes.Good, new Date(time));
  b.setValueFromSource({ dataType: DataType.Double, value: number }, StatusCodes.Good, new Date(time));
  return true;
});
