import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';
import { compress } from './build/compress.ts';

const OUT = 'assets/built';
/** The running server that `vite dev` hands requests on to. */
const server = process.env.SIGNALBOX_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [svelte(), compress(OUT)],
  build: {
    outDir: OUT,
    emptyOutDir: false,
    manifest: true,
    target: 'es2023',
    // The content security policy of the page allows no inlined resources but pictures.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: {
      '/api': server,
      '/health': server,
      '/metrics': server,
      '/ws': { target: server.replace(/^http/, 'ws'), ws: true },
    },
  },
});
