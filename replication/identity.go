package replication

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Identity says which member a directory belongs to. Its fields are decided at the founding or when
// the member is admitted, or counted at every start. dragonboat keeps records of the same, which
// are not used.
//
// The file is text in two parts:
//
//	vivarium identity crc32c <of the rest, 8 hex digits>\n
//	<JSON object>\n
type Identity struct {
	Digest    [32]byte              // founding digest
	Member    MemberID              // the member whose log and image are here; zero: not admitted yet
	Shards    int                   // Raft groups
	Ensemble  string                // the ensemble's name, for people; Digest covers it
	Directory [16]byte              // random id of the directory
	Start     uint64                // how often a node was started on it
	Lineage   [16]byte              // the ensemble's; zero until the log has it
	Log       string                // the log store's type, LogTan; empty until the directory has a log
	Peers     map[MemberID][16]byte // directory ids of the other members, as first met

	Founders []MemberID // of the ensemble, which Digest covers; empty: it has yet to join one
	Joined   bool       // the member is no founder: it began as a learner
	Former   Former     // what the process was before it got this directory id
	Out      string     // why the member is out of the ensemble for good; empty: it is not

	// Of forced recoveries. The image may still be of an ancestor: it lags behind the log.
	Ancestors  [][16]byte // the lineages that they have ended, the newest last
	Recovering [16]byte   // one has begun, and this lineage is to follow; zero: the logs lack nothing
	Stopped    []MemberID // while Recovering: the voters that somebody has said to be stopped
	Commits    []uint64   // until the first start is complete: what each log knew to be committed before
	Recovered  bool       // the logs are complete, and do not have Lineage yet
}

// Found makes who has the identity a member of the ensemble of these founders.
func (id *Identity) Found(as MemberID, founders []MemberID) {
	id.Member, id.Founders, id.Digest = as, founders, Founding(id.Ensemble, founders, id.Shards)
}

// Superseded is why a member is Out whose lineage a forced recovery has ended.
const Superseded = "superseded"

// Former names a member and its directory. The zero value names none.
type Former struct {
	Member    MemberID
	Directory [16]byte
}

const (
	// LogTan is the log store this version writes.
	LogTan = "tan"

	identityFormat = 1
	identityName   = "identity"
	identityMagic  = "vivarium identity crc32c "
	// unreleasedMagic began the files of builds from before the first release.
	unreleasedMagic = "vivarium identity "
	// identityMax bounds how much of the file is read. It is far above any ensemble's size, and far
	// below a size that would cost much.
	identityMax = 1 << 20
)

// ErrFormat means that the file is whole, and of a build with another format.
var ErrFormat = errors.New("another format")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identityJSON is an Identity as the file has it, with ids and digests in hex, so that people can
// compare them.
type identityJSON struct {
	Format    int                 `json:"format"`
	Ensemble  string              `json:"ensemble"`
	Digest    string              `json:"digest"`
	Member    MemberID            `json:"member"`
	Shards    int                 `json:"shards"`
	Lineage   string              `json:"lineage"`
	Directory string              `json:"directory"`
	Start     uint64              `json:"start"`
	Log       string              `json:"log"`
	Peers     map[MemberID]string `json:"peers,omitempty"`
	Founders  []MemberID          `json:"founders,omitempty"`
	Joined    bool                `json:"joined,omitempty"`
	Former    *formerJSON         `json:"former,omitempty"`
	Out       string              `json:"out,omitempty"`

	Ancestors  []string   `json:"ancestors,omitempty"`
	Recovering string     `json:"recovering,omitempty"`
	Stopped    []MemberID `json:"stopped,omitempty"`
	Commits    []uint64   `json:"commits,omitempty"`
	Recovered  bool       `json:"recovered,omitempty"`
}

// formerJSON is a Former as the file has it.
type formerJSON struct {
	Member    MemberID `json:"member"`
	Directory string   `json:"directory"`
}

// WayOut ends every error that keeps a member from coming back. It says what can be done today.
const WayOut = "start the member with its directory as it last was, or leave it down: the others go on without it (docs/runbook.md: A member that cannot come back)"

// ReadIdentity reads the identity file of dir. It returns false if there is none. If the file is
// damaged, the error is ErrIdentity, with the file's name and what is wrong.
func ReadIdentity(d Disk, dir string) (Identity, bool, error) {
	name := filepath.Join(dir, identityName)
	text, err := readFile(d, name, identityMax)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, err
	}
	id, err := decodeIdentity(text)
	if err != nil {
		advice := WayOut
		if errors.Is(err, ErrFormat) {
			advice = "start the build that wrote it"
		}
		return Identity{}, false, fmt.Errorf("%w: %s: %w; %s", ErrIdentity, name, err, advice)
	}
	return id, true, nil
}

// WriteIdentity replaces the identity file of dir. When it returns nil the file is durable. A crash
// before that leaves the old or the new file.
func WriteIdentity(d Disk, dir string, id Identity) error {
	text, err := encodeIdentity(id)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, identityName)
	if err := writeFile(d, name+".new", text); err != nil {
		return err
	}
	if err := d.Rename(name+".new", name); err != nil {
		return err
	}
	if err := syncDir(d, dir); err != nil {
		return err
	}
	// If the switch is thrown, all of the above succeeds in memory. A start must not go on from
	// there.
	return d.Err()
}

func encodeIdentity(id Identity) ([]byte, error) {
	j := identityJSON{
		Format: identityFormat, Ensemble: id.Ensemble, Lineage: hex.EncodeToString(id.Lineage[:]), Digest: hex.EncodeToString(id.Digest[:]), Member: id.Member,
		Shards: id.Shards, Directory: hex.EncodeToString(id.Directory[:]), Start: id.Start, Log: id.Log,
		Peers: make(map[MemberID]string, len(id.Peers)), Founders: id.Founders, Joined: id.Joined, Out: id.Out,
		Stopped: id.Stopped, Commits: id.Commits, Recovered: id.Recovered,
	}
	for _, l := range id.Ancestors {
		j.Ancestors = append(j.Ancestors, hex.EncodeToString(l[:]))
	}
	if l := id.Recovering; l != ([16]byte{}) {
		j.Recovering = hex.EncodeToString(l[:])
	}
	if f := id.Former; f != (Former{}) {
		j.Former = &formerJSON{Member: f.Member, Directory: hex.EncodeToString(f.Directory[:])}
	}
	for m, dir := range id.Peers {
		j.Peers[m] = hex.EncodeToString(dir[:])
	}
	body, err := json.MarshalIndent(j, "", "  ")
	if err != nil {
		return nil, err
	}
	body = append(body, '\n')
	return append(fmt.Appendf(nil, "%s%08x\n", identityMagic, crc32.Checksum(body, castagnoli)), body...), nil
}

func decodeIdentity(text []byte) (Identity, error) {
	head, body, ok := bytes.Cut(text, []byte("\n"))
	sum, isOurs := bytes.CutPrefix(head, []byte(identityMagic))
	if ok && !isOurs && bytes.HasPrefix(head, []byte(unreleasedMagic)) {
		return Identity{}, fmt.Errorf("%w: a build from before the first release wrote it, whose directories no other build opens, and nothing was changed", ErrFormat)
	}
	if !ok || !isOurs {
		return Identity{}, errors.New("not an identity file")
	}
	if want := fmt.Sprintf("%08x", crc32.Checksum(body, castagnoli)); string(sum) != want {
		return Identity{}, fmt.Errorf("checksum %s does not match the content, whose checksum is %s", sum, want)
	}
	var j identityJSON
	err := json.Unmarshal(body, &j)
	if err == nil && j.Format != identityFormat {
		return Identity{}, fmt.Errorf("%w: it has format %d, this build reads %d", ErrFormat, j.Format, identityFormat)
	}
	if err == nil { // the format is known, so every field is
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(&j)
	}
	if err != nil {
		return Identity{}, err
	}
	return j.identity()
}

func (j identityJSON) identity() (Identity, error) {
	id := Identity{Ensemble: j.Ensemble, Member: j.Member, Shards: j.Shards, Start: j.Start, Log: j.Log,
		Founders: j.Founders, Joined: j.Joined, Out: j.Out, Stopped: j.Stopped, Commits: j.Commits, Recovered: j.Recovered}
	if err := unhex(id.Digest[:], j.Digest); err != nil {
		return Identity{}, fmt.Errorf("digest: %w", err)
	}
	if err := unhex(id.Directory[:], j.Directory); err != nil {
		return Identity{}, fmt.Errorf("directory: %w", err)
	}
	for _, text := range j.Ancestors {
		var l [16]byte
		if err := unhex(l[:], text); err != nil {
			return Identity{}, fmt.Errorf("ancestors: %w", err)
		}
		id.Ancestors = append(id.Ancestors, l)
	}
	if j.Recovering != "" {
		if err := unhex(id.Recovering[:], j.Recovering); err != nil {
			return Identity{}, fmt.Errorf("recovering: %w", err)
		}
	}
	if err := unhex(id.Lineage[:], j.Lineage); err != nil {
		return Identity{}, fmt.Errorf("lineage: %w", err)
	}
	if j.Former != nil {
		id.Former.Member = j.Former.Member
		if err := unhex(id.Former.Directory[:], j.Former.Directory); err != nil {
			return Identity{}, fmt.Errorf("former: %w", err)
		}
	}
	if len(j.Peers) > 0 {
		id.Peers = make(map[MemberID][16]byte, len(j.Peers))
	}
	for m, text := range j.Peers {
		var dir [16]byte
		if err := unhex(dir[:], text); err != nil {
			return Identity{}, fmt.Errorf("peer %d: %w", m, err)
		}
		id.Peers[m] = dir
	}
	return id, nil
}

func unhex(to []byte, text string) error {
	b, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	if len(b) != len(to) {
		return fmt.Errorf("%d bytes, want %d", len(b), len(to))
	}
	copy(to, b)
	return nil
}

// Founding returns the digest of what the members of an ensemble must agree on before they talk:
// its name, the founding members and the number of shards. It does not include addresses. The order
// of members does not matter.
func Founding(ensemble string, members []MemberID, shards int) [32]byte {
	b := []byte("vivarium founding 1\n")
	b = binary.BigEndian.AppendUint64(b, uint64(len(ensemble)))
	b = append(b, ensemble...)
	b = binary.BigEndian.AppendUint64(b, uint64(shards))
	for _, m := range slices.Sorted(slices.Values(members)) {
		b = binary.BigEndian.AppendUint64(b, uint64(m))
	}
	return sha256.Sum256(b)
}

// UUID returns the name under which dragonboat knows a member. It is derived from the founding
// digest and the member's id, so no address is ever recorded in the log.
func UUID(digest [32]byte, m MemberID) string {
	b := append([]byte("vivarium member 1\n"), digest[:]...)
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(m)))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: made by the application
	u[8] = u[8]&0x3f | 0x80 // RFC 9562 variant
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// deployment returns the number that dragonboat puts into every message. It is never zero, which
// dragonboat reads as "unset".
func deployment(digest [32]byte) uint64 {
	return binary.BigEndian.Uint64(digest[:8]) | 1
}

func readFile(d Disk, name string, limit int64) (_ []byte, err error) {
	f, err := d.OpenForRead(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("%s is longer than %d bytes", name, limit)
	}
	return text, nil
}

func writeFile(d Disk, name string, text []byte) (err error) {
	f, err := d.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(text); err != nil {
		return err
	}
	return f.Sync()
}

func syncDir(d Disk, name string) (err error) {
	f, err := d.OpenDir(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return f.Sync()
}

// Listed formats ids for a text: 1, 2, 3.
func Listed(ids []MemberID) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ", ")
}
