package campaign

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/vivarium-go/vivarium/embed"
)

// linearMax limits the search for an order of one register's history. A longer search leaves the
// history undecided. A test shortens it.
var linearMax = 10 * time.Second

// checkLinear checks that the writes and synced reads of each register have an order that fits real
// time and the rules of the tree. Unless last is set, it leaves the epochs in use for a later call.
func checkLinear(p *past, rep *report, dir string, last bool) {
	newest := int64(-1)
	registers := make(map[string][]*op)
	for i := range p.Ops {
		o := &p.Ops[i]
		if epoch, ok := epochOf(o.Path); ok {
			newest = max(newest, epoch)
			registers[o.Path] = append(registers[o.Path], o)
		}
	}
	when := 0 // the last check counts them again
	if last {
		when = 1
	}
	for path, ops := range registers {
		epoch, _ := epochOf(path)
		if !last && epoch != newest-2 { // the registers of epoch newest-1 may still be in use
			continue
		}
		switch result, why := linear(ops); result {
		case porcupine.Illegal:
			rep.violate("linearizable", "%s: no order explains its history of %d operations%s", path, len(ops), draw(dir, path, why))
		case porcupine.Unknown:
			rep.count(sectionChecks, "register NOT DECIDED", when)
		default:
			rep.count(sectionChecks, "register linearizable", when)
		}
	}
}

func epochOf(path string) (int64, bool) {
	rest, ok := strings.CutPrefix(inArea(path), registersPath+"/")
	if !ok {
		return 0, false
	}
	epoch, _, _ := strings.Cut(rest, "-")
	n, err := strconv.ParseInt(epoch, 10, 64)
	return n, err == nil
}

// linear decides one register's history.
func linear(ops []*op) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	var list []porcupine.Operation
	clients := make(map[string]int)
	for _, o := range ops {
		if !decides(o) {
			continue
		}
		if _, ok := clients[o.Client]; !ok {
			clients[o.Client] = len(clients)
		}
		list = append(list, porcupine.Operation{ClientId: clients[o.Client], Input: o, Call: int64(o.Begin), Output: o, Return: int64(o.End)})
	}
	return porcupine.CheckOperationsVerbose(registerModel, list, linearMax)
}

// draw writes a picture of how far an order could be found, and returns a text that names the file.
func draw(dir, path string, why porcupine.LinearizationInfo) string {
	if dir == "" {
		return ""
	}
	name := filepath.Join(dir, strings.ReplaceAll(path[1:], "/", "-")+".html")
	if err := porcupine.VisualizePath(registerModel, why, name); err != nil {
		return ""
	}
	return ", see " + name
}

// decides reports whether an op says anything about its register. A plain read may be old, a failed
// read saw nothing, and a write that was not applied never happens.
func decides(o *op) bool {
	switch {
	case o.Call == callGet, o.Outcome == notApplied:
		return false
	case o.Call == callSyncGet:
		return o.Outcome == applied || o.Outcome == noNode
	}
	return true
}

// A znode is the state of a register at one moment. In the zero value it does not exist.
type znode struct {
	exists  bool
	data    string
	version int32
}

// registerModel is a znode as its writes and synced reads see it. A write of unknown outcome may
// take effect at any time after it was issued, so it has no end. If it never takes effect, that is
// the same as taking effect after everything else.
var registerModel = porcupine.Model{
	Init:              func() any { return znode{} },
	Step:              func(state, in, _ any) (bool, any) { return in.(*op).explain(state.(znode)) },
	DescribeOperation: func(in, _ any) string { return in.(*op).String() },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// explain reports whether an op can have had its outcome on a znode, and returns the znode after
// it.
func (o *op) explain(z znode) (bool, znode) {
	next, answer := o.apply(z)
	switch {
	case o.Outcome == unknown:
		return true, next
	case o.Outcome != answer:
		return false, z
	case o.Outcome == applied && o.Call == callSyncGet:
		return o.Got == z.data && o.Stat.Version == z.version, z
	case o.Outcome == applied && o.Call != callDelete:
		return o.Stat.Version == next.version, next
	}
	return true, next
}

// apply returns the znode after an op, and the op's outcome.
func (o *op) apply(z znode) (znode, outcome) {
	fits := o.Version == embed.AnyVersion || o.Version == z.version
	switch {
	case o.Call == callCreate && z.exists:
		return z, nodeExists
	case o.Call == callCreate:
		return znode{exists: true, data: o.Data}, applied
	case !z.exists:
		return z, noNode
	case o.Call == callSyncGet:
		return z, applied
	case !fits:
		return z, badVersion
	case o.Call == callDelete:
		return znode{}, applied
	}
	return znode{exists: true, data: o.Data, version: z.version + 1}, applied
}

// lastReads returns reads of all registers in the final tree. With them, an acknowledged write must
// still be there, however old it is.
func lastReads(p *past, tree []entry) (reads []op) {
	left := make(map[string]entry)
	for _, z := range tree {
		left[z.Path] = z
	}
	var paths []string
	for i := range p.Ops {
		if _, ok := epochOf(p.Ops[i].Path); ok {
			paths = append(paths, p.Ops[i].Path)
		}
	}
	slices.Sort(paths)
	for _, path := range slices.Compact(paths) {
		o := op{Client: "the end", Session: "the end", Call: callSyncGet, Path: path, Begin: p.Taken, End: p.Taken, Outcome: noNode}
		if z, ok := left[path]; ok {
			o.Outcome, o.Got, o.Stat = applied, z.Data, z.Stat
		}
		reads = append(reads, o)
	}
	return reads
}
