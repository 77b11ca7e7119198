// Package audit keeps the records of embed.Config.Audit in files, and searches them. It answers who
// created, changed or deleted a znode, and when.
//
//	journal, err := audit.Open(audit.Config{Dir: "/var/log/shop/audit"})
//	if err != nil {
//		return err
//	}
//	defer journal.Close() // after Node.Close
//	node, err := embed.Start(embed.Config{Dir: "/var/lib/shop", Audit: journal.Record})
//
// Afterwards, also while the node runs:
//
//	for r, err := range audit.Search("/var/log/shop/audit", audit.Query{Path: "/config/limits"}) {
//
// Each member keeps its own files. Every member records every change, so the files of any one of
// them have the answer; see embed.AuditRecord. The command vivarium audit prints it.
//
// A record is one line of JSON. It is written as soon as the disk is free and not synced; records
// that come meanwhile are written together. A crash of the process costs only what waits for the
// disk. A crash of the machine also costs what the kernel had not written. After a restart, the
// member records the newest part of its log again.
//
// The files have the names audit-0000000001.jsonl and so on. The one with the highest number grows;
// none is ever renamed or changed otherwise. Only their owner may read them.
package audit
