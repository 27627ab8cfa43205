// SHA-256. The browser's own is faster, and missing in pages that are served without HTTPS from another machine.

const primes = [];
for (let n = 2; primes.length < 64; n++) if (primes.every((prime) => n % prime)) primes.push(n);
const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32);
const START = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const ROUND = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));

/** Return the hash of bytes in hexadecimal. */
export async function sha256(bytes) {
  if (!globalThis.crypto?.subtle) return sha256InScript(bytes);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The same, as FIPS 180-4 describes it. */
export function sha256InScript(bytes) {
  const tail = new Uint8Array((bytes.length % 64) + 9 > 64 ? 128 : 64);
  const whole = bytes.length - (bytes.length % 64);
  tail.set(bytes.subarray(whole));
  tail[bytes.length % 64] = 128;
  const end = new DataView(tail.buffer);
  end.setUint32(tail.length - 8, Math.floor(bytes.length / 2 ** 29));
  end.setUint32(tail.length - 4, (bytes.length * 8) % 2 ** 32);
  const state = Int32Array.from(START);
  const words = new Int32Array(64);
  const body = new DataView(bytes.buffer, bytes.byteOffset, whole);
  for (let at = 0; at < whole; at += 64) addBlock(state, words, body, at);
  for (let at = 0; at < tail.length; at += 64) addBlock(state, words, end, at);
  return [...state].map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

function addBlock(state, words, view, at) {
  for (let i = 0; i < 16; i++) words[i] = view.getInt32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const early = words[i - 15];
    const late = words[i - 2];
    const s0 = turned(early, 7) ^ turned(early, 18) ^ (early >>> 3);
    const s1 = turned(late, 17) ^ turned(late, 19) ^ (late >>> 10);
    words[i] = (words[i - 16] + s0 + words[i - 7] + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const s1 = turned(e, 6) ^ turned(e, 11) ^ turned(e, 25);
    const first = (h + s1 + ((e & f) ^ (~e & g)) + ROUND[i] + words[i]) | 0;
    const s0 = turned(a, 2) ^ turned(a, 13) ^ turned(a, 22);
    const second = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + first) | 0;
    d = c;
    c = b;
    b = a;
    a = (first + second) | 0;
  }
  const now = [a, b, c, d, e, f, g, h];
  for (let i = 0; i < 8; i++) state[i] = (state[i] + now[i]) | 0;
}

function turned(word, bits) {
  return (word >>> bits) | (word << (32 - bits));
}
