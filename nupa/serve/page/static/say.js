// SPDX-License-Identifier: BSD-3-Clause
// Quantities as text: three significant digits, and the units of the field.

const STEPS = ["", "k", "M", "G", "T", "P"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function scaled(value, base, last) {
  let step = 0;
  let left = value;
  while (left >= base * 0.9995 && step < last) {
    left /= base;
    step += 1;
  }
  return [left, step];
}

function digits(value) {
  if (value >= 100) return String(Math.round(value));
  return value.toFixed(value >= 10 ? 1 : 2);
}

function shortest(value) {
  return Number.isInteger(value) ? String(value) : digits(value);
}

/** Returns a rate of bytes a second in bits: "12.4 Gb/s". */
export function sayRate(bytesPerSecond) {
  if (bytesPerSecond < 0.125) return "0 b/s";
  const [value, step] = scaled(bytesPerSecond * 8, 1000, 5);
  return `${digits(value)} ${STEPS[step]}b/s`;
}

/** Returns the same for a small place: "12.4G", and "·" for nothing. */
export function sayShortRate(bytesPerSecond) {
  if (bytesPerSecond < 0.125) return "·";
  const [value, step] = scaled(bytesPerSecond * 8, 1000, 5);
  return `${digits(value)}${STEPS[step]}`;
}

/** Returns a size: "4 KiB". */
export function sayBytes(bytes) {
  const [value, step] = scaled(bytes, 1024, 5);
  return `${shortest(value)} ${BINARY[step]}`;
}

/** Returns a count with thin spaces between thousands: "12 345". */
export function sayCount(count) {
  return String(count).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009");
}

/** Returns a number and its noun: "1 host", "2 hosts". */
export function sayMany(count, noun) {
  return `${sayCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Returns a duration: "1.5 µs". */
export function sayDuration(ns) {
  if (ns < 1000) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${shortest(ns / 1e3)} µs`;
  if (ns < 1e9) return `${shortest(ns / 1e6)} ms`;
  return `${shortest(ns / 1e9)} s`;
}

/** Returns the local time of day of ns since 1970: "14:03:07.5". */
export function sayClock(timeNs) {
  const at = new Date(timeNs / 1e6);
  const two = (number) => String(number).padStart(2, "0");
  const tenths = Math.floor(at.getMilliseconds() / 100);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${tenths}`;
}

/** Returns a P_Key: "0xffff". */
export function sayPkey(pkey) {
  return `0x${pkey.toString(16).padStart(4, "0")}`;
}
