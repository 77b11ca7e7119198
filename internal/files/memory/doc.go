// Package memory is a file system in memory, for tests. It knows what is durable, and can say what
// a power cut would leave:
//
//	disk := memory.New()
//	f, err := disk.OpenFile("/log", os.O_RDWR|os.O_CREATE, 0o666)
//	_, err = f.WriteAt(entry, 0)
//	err = f.SyncData()
//	after := disk.PowerCut(memory.AnythingLasts, rng) // may lack the name /log
//
// The contents of a file are durable after its Sync or SyncData. A name is durable after the Sync
// of its directory. What was not synced survives a power cut by the [Luck] that the caller chooses.
// Real disks and file systems lose less: they keep some changes together that may part here.
//
// Every call finishes without waiting for the machine, so the package suits tests in bubbles of
// testing/synctest. A [System] needs as much memory as its files, and up to twice as much as the
// changes that were not synced. It takes and refuses names as Linux does. It checks no
// permissions, and has no symbolic links. Its working directory is its root.
//
// Read inode.go first, then system.go and handle.go, then cut.go.
package memory
