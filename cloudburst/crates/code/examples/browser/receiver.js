// Cloudburst's receiver for a page, or for Node: puts messages together from datagrams, whichever are lost.
// No module, so that a page loads it from a file, too; in Node, require("./receiver.js").
class CloudburstReceiver {
  // Takes the bytes of browser_receiver.wasm.
  static async load(wasm) {
    const { instance } = await WebAssembly.instantiate(wasm);
    return new CloudburstReceiver(instance.exports);
  }

  constructor(wasm) {
    this.wasm = wasm;
  }

  // Takes a datagram as a Uint8Array. Returns the message that it completes, or null.
  receive(datagram) {
    const { memory, datagram: place, datagram_bytes, receive, message, message_bytes } = this.wasm;
    if (datagram.length > datagram_bytes()) return null;
    const at = place();
    // Memory that has grown is another buffer: it is asked for after each call, not before.
    new Uint8Array(memory.buffer, at, datagram.length).set(datagram);
    const COMPLETE = 1;
    if (receive(datagram.length) !== COMPLETE) return null;
    const [begin, length] = [message(), message_bytes()];
    return new Uint8Array(memory.buffer, begin, length).slice();
  }
}

// The datagrams in a file that the example `sender` has written: each behind its length, until one of 0.
function* datagramsOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0, length; (length = view.getUint16(at)) !== 0; at += 2 + length) {
    yield bytes.subarray(at + 2, at + 2 + length);
  }
}

if (typeof module !== "undefined") module.exports = { CloudburstReceiver, datagramsOf };
