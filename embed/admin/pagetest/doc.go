// Package pagetest drives the page of package admin in a real browser, Debian's chromium. It is a
// module of its own, which keeps the browser's protocol out of the library's dependencies.
package pagetest
