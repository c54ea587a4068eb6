// The receiver in Node: node node.js browser_receiver.wasm datagrams
const fs = require("node:fs");
const { CloudburstReceiver, datagramsOf } = require("./receiver.js");

async function main([module, datagrams]) {
  const receiver = await CloudburstReceiver.load(fs.readFileSync(module));
  for (const datagram of datagramsOf(fs.readFileSync(datagrams))) {
    const message = receiver.receive(datagram);
    if (message) console.log(new TextDecoder().decode(message));
  }
}

main(process.argv.slice(2));
