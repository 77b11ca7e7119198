//go:build !linux

package files

func (f *file) SyncData() error { return f.Sync() }
