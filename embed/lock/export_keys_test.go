package lock

// KeptBy returns how many locks a Keys remembers.
func KeptBy(k *Keys) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.mu.keys)
}
