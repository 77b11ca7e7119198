package backupfile

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vivarium-go/vivarium/engine/command"
	"github.com/vivarium-go/vivarium/tree"
)

// A Header says what a file is a backup of.
type Header struct {
	Time     int64    `json:"time"`     // Unix ms, by the clock of Member when it began
	Ensemble string   `json:"ensemble"` // the name; may be empty
	Lineage  string   `json:"lineage"`  // 32 hex digits; empty if the ensemble has chosen none
	Member   uint64   `json:"member"`   // who made it
	Members  []uint64 `json:"members"`  // of the ensemble, as Member knew them
	Shards   []Shard  `json:"shards"`   // all, in order
}

// A Shard is the state of one shard in a file. Each shard is whole by itself. No moment is common
// to all shards.
type Shard struct {
	Shard   uint32    `json:"shard"` // from 1
	Level   uint32    `json:"level"` // of its records
	Index   uint64    `json:"index"` // of the newest log entry in it
	Zxid    tree.Zxid `json:"zxid"`  // of the newest transaction in it
	Lead    tree.Zxid `json:"lead"`  // see command.State
	Znodes  int       `json:"znodes"`
	Schemes []string  `json:"schemes"` // that its ACLs may use
}

// check returns what is wrong with a header, or nil.
func (h *Header) check() error {
	if len(h.Shards) == 0 {
		return errors.New("it names no shard")
	}
	if id, err := hex.DecodeString(h.Lineage); err != nil || len(id) != 0 && len(id) != 16 {
		return fmt.Errorf("its lineage is %q", h.Lineage)
	}
	for i, s := range h.Shards {
		if int(s.Shard) != i+1 || s.Znodes < 0 {
			return fmt.Errorf("shard %d of %d in its list is %d, with %d znodes", i+1, len(h.Shards), s.Shard, s.Znodes)
		}
		if err := command.CheckLevel(s.Level, command.LevelMax); err != nil {
			return fmt.Errorf("shard %d: %w", s.Shard, err)
		}
	}
	return nil
}

// encode returns the header's body.
func (h *Header) encode() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(h)
	if err == nil && len(body) > headerMax {
		err = fmt.Errorf("a header of %d bytes, the limit is %d", len(body), headerMax)
	}
	return body, err
}

// decodeHeader reads what encode has written, and nothing else: a field that this build does not
// know may be one that matters.
func decodeHeader(body []byte) (h Header, err error) {
	if err := json.Unmarshal(body, &h); err != nil {
		return h, corrupt("its header: %v", err)
	}
	if err := h.check(); errors.Is(err, command.ErrLevel) {
		return h, err
	} else if err != nil {
		return h, corrupt("%v", err)
	}
	if again, err := h.encode(); err != nil || !bytes.Equal(again, body) {
		return h, corrupt("its header has what this build does not write")
	}
	return h, nil
}
