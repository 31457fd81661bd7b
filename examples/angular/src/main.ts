import { bootstrapApplication } from '@angular/platform-browser';
import { provideTurnout } from '@turnout/angular';
import { FinalComponent } from './app/final.component';

// No address: the server that the page came from (`ng serve` passes /api on to it).
bootstrapApplication(FinalComponent, { providers: [provideTurnout()] }).catch((error: unknown) => console.error(error));
