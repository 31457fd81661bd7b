import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { TurnoutProvider } from "@turnout/react";
import { App } from "./App";
import "./styles.css";

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <TurnoutProvider>
      <App />
    </TurnoutProvider>
  </StrictMode>,
);
