// Package operationtest tests what runs and watches a service: audits, backups, seeding, samples,
// health, and starting again after a failure. It has tests only.
package operationtest
