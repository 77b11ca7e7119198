package disktest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/embedtest"
	"github.com/vivarium-go/vivarium/embed/internal/embedkit"
	"github.com/vivarium-go/vivarium/embed/internal/inside"
	"github.com/vivarium-go/vivarium/internal/files"
	"github.com/vivarium-go/vivarium/internal/testkit"
	"github.com/vivarium-go/vivarium/storage"
	"github.com/vivarium-go/vivarium/storage/disk"
)

// One byte of a version, a format or a level is another in the directory of a stopped member: by
// damage, or because another build wrote it, which would also have made the checksum fit. The
// member does not start, says why and what to do, and changes nothing.
//
// Package transport does this to the handshake, and package storage to the snapshot stream.
func TestStart_ChangesNothingAfterAChangedVersion(t *testing.T) {
	const ofEach = 25
	base, baseDir := newDisk(t)
	testkit.Bubble(t, func(t *testing.T) {
		ens := newLone(t, base, baseDir)
		embedkit.Write(t, ens.Node(1), "/a")
		ens.Stop(1) // all of it is in the image
		for i := 0; ; i++ {
			needle := fmt.Sprint("/needle", i)
			ens.Start(1)
			ens.Ready(1)
			embedkit.Write(t, ens.Node(1), needle, needle+"-behind") // the last record of a log may be torn
			ens.Kill(1)
			if !inImage(t, base, memberDir(baseDir, 1), needle) {
				break // it is only in the log: the save that each start asks for was before it
			}
		}
	})
	for _, c := range []struct {
		what   string
		change change
		says   string
	}{
		{"identity", changeIn("identity", `"format": 1`, 11, nil), "identity"},
		{"identity of another build", changeIn("identity", `"format": 1`, 1, sealIdentity), "identity"},
		{"identity's head", changeIn("identity", "vivarium identity crc32c", 24, nil), "identity"},
		{"image's format", changeIn("format", "format 1", 8, nil), "shard-1/format"},
		{"image's format of another build", changeIn("format", "format 1", 1, sealMarker), "shard-1/format"},
		{"level", changeState(1), "shard 1: "},
		{"state", changeState(0), "shard 1: "},
		{"log", changeIn(".log", "\x97\x02", 12, nil), "raft/"}, // with the mask and the byte before it
		{"log of another build", changeIn(".log", "\x97\x02", 2, sealChunk), "raft/"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			rng := seeded(t)
			testkit.Bubble(t, func(t *testing.T) {
				for range ofEach {
					disk, dir := newDisk(t)
					copyTree(t, disk, dir, base, baseDir)
					member := memberDir(dir, 1)
					c.change(t, rng, disk, member)
					before := contents(t, disk, member)
					_, err := newLone(t, disk, dir).TryStart(1)
					if err == nil {
						t.Fatal("it has started")
					}
					if text := err.Error(); !strings.Contains(text, c.says) || !strings.Contains(text, "; ") && !strings.Contains(text, ": start ") {
						t.Errorf("it does not say what is wrong and what to do: %v", err)
					}
					if after := contents(t, disk, member); !reflect.DeepEqual(before, after) {
						t.Errorf("the start that was refused with %q has changed the directory", err)
					}
					if t.Failed() {
						return
					}
				}
			})
		})
	}
}

// A change is made to the directory of a member.
type change func(t *testing.T, rng *rand.Rand, on files.System, member string)

func inImage(t *testing.T, on files.System, member, path string) (found bool) {
	d, err := disk.Open(on, member)
	must(t, err)
	_, err = storage.Check(storage.Options{Disk: d, Dir: filepath.Join(member, "image", "shard-1")}, func(table storage.Table, key, _ []byte) error {
		found = found || table == storage.Znodes && string(key) == path
		return nil
	})
	must(t, err)
	return found
}

// newLone returns an ensemble of one, which runs if dir is empty.
func newLone(t *testing.T, disk files.System, dir string) *embedtest.Ensemble {
	_, err := disk.Stat(memberDir(dir, 1))
	return embedtest.New(t, 1, embedtest.Options{Dir: dir, Stopped: err == nil, Config: func(c *embed.Config) {
		c.Shards, c.Inside = 1, &inside.Seams{Files: disk}
	}})
}

// changeIn changes one of the last bytes of a text in a file, and then seals the file. In a log,
// the text is the beginning of the batch with the needle.
func changeIn(suffix, text string, last int, seal func(file []byte, at int)) change {
	return func(t *testing.T, rng *rand.Rand, on files.System, member string) {
		var at int
		name := ""
		var data []byte
		for _, file := range filesBelow(t, on, member) {
			read := readFile(t, on, file)
			before, _, _ := bytes.Cut(unmasked(read), []byte("/needle"))
			if i := bytes.LastIndex(before, []byte(text)); strings.HasSuffix(file, suffix) && i >= 0 {
				name, data, at = file, read, i+len(text)-1-rng.IntN(last)
			}
		}
		if name == "" {
			t.Fatalf("no file %s has %q", suffix, text)
		}
		if was := data[at]; seal != nil && was >= '0' && was <= '9' {
			data[at] = '0' + (was-'0'+byte(1+rng.IntN(9)))%10
		} else {
			data[at] ^= byte(1 + rng.IntN(255))
		}
		if seal != nil {
			seal(data, at)
		}
		writeFile(t, on, name, data)
	}
}

func sealIdentity(file []byte, _ int) {
	head, body, _ := bytes.Cut(file, []byte("\n"))
	copy(head[len(head)-8:], fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)))
}

func sealMarker(file []byte, _ int) {
	body := file[:bytes.LastIndex(file, []byte("sum "))]
	copy(file[len(body):], fmt.Sprintf("sum %08x", crc32.Checksum(body, castagnoli)))
}

// sealChunk gives the chunk of tan's log around a byte a new checksum. The file has one block.
func sealChunk(file []byte, changed int) {
	const header = 7 // the checksum, the length of what follows the header, and the type
	for at := 0; ; {
		end := at + header + int(binary.LittleEndian.Uint16(file[at+4:]))
		if changed < end {
			binary.LittleEndian.PutUint32(file[at:], uint32(xxhash.Sum64(file[at+6:end])))
			return
		}
		at = end
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// changeState changes a byte of the record from which a start learns the level of the image. The
// byte at 0 says how many fields the record has, the next one is the level.
func changeState(at int) change {
	return func(t *testing.T, rng *rand.Rand, on files.System, member string) {
		d, err := disk.Open(on, member)
		must(t, err)
		image, err := storage.Open(storage.Options{Disk: d, Dir: filepath.Join(member, "image", "shard-1")})
		must(t, err)
		var changed []byte
		must(t, image.Load(func(table storage.Table, key, value []byte) error {
			if table == storage.Meta && string(key) == "state" {
				changed = bytes.Clone(value)
			}
			return nil
		}))
		changed[at] ^= byte(1 + rng.IntN(255))
		b := image.NewBatch()
		b.Put(storage.Meta, []byte("state"), changed)
		must(t, b.Commit(image.Applied()))
		must(t, image.Close())
	}
}
