import { bootstrapApplication } from '@angular/platform-browser';
import { FinalComponent } from './app/final.component';

bootstrapApplication(FinalComponent).catch((error: unknown) => console.error(error));
