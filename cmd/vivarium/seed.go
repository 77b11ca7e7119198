package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vivarium-go/vivarium/embed/backup"
)

// seedFrom has a new ensemble begin with the backup in a file. A member that is new reads the whole
// file first, and is not founded if the file is of no use.
func seedFrom(c *config, name string) error {
	c.Seed = func(context.Context) (io.ReadCloser, error) { return os.Open(name) }
	if _, err := os.Stat(filepath.Join(c.Dir, "identity")); !errors.Is(err, fs.ErrNotExist) {
		return nil // it has begun, and may be past all need of the file
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := backup.Verify(f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
