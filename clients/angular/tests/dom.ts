// A document for component tests, with Node's own fetch and WebSocket, which use a real server.

import "@angular/compiler";
import { NgModule, provideZonelessChangeDetection } from "@angular/core";
import { getTestBed } from "@angular/core/testing";
import { BrowserTestingModule, platformBrowserTesting } from "@angular/platform-browser/testing";
import { Window } from "happy-dom";

const window = new Window({ url: "http://127.0.0.1/", width: 1000, height: 800 });
for (const name of Object.getOwnPropertyNames(window)) {
  if (name in globalThis) continue;
  Object.defineProperty(globalThis, name, { value: Reflect.get(window, name) as unknown, configurable: true, writable: true });
}
Object.defineProperty(globalThis, "window", { value: globalThis, configurable: true });

@NgModule({ providers: [provideZonelessChangeDetection()] })
class Zoneless {}

getTestBed().initTestEnvironment([BrowserTestingModule, Zoneless], platformBrowserTesting());
