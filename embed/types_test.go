package embed_test

import (
	"go/ast"
	"go/types"
	"reflect"
	"strings"
	"testing"

	"github.com/vivarium-go/vivarium/embed"
)

// aliased has a value of each type of the vocabulary.
var aliased = map[string]any{
	"MemberID": embed.MemberID(0), "Zxid": embed.Zxid(0), "Stat": embed.Stat{}, "SessionID": embed.SessionID(0), "CreateMode": embed.CreateMode(0),
	"ACL": embed.ACL{}, "Perms": embed.Perms(0), "Result": embed.Result{}, "MultiError": embed.MultiError{}, "State": embed.State(0),
	"WatchMode": embed.WatchMode(0), "EventType": embed.EventType(0), "Event": embed.Event{}, "GapError": embed.GapError{},
	"BackupInfo": embed.BackupInfo{}, "BackupShard": embed.BackupShard{}, "Candidate": embed.Candidate{}, "Width": embed.Width(0),
}

// go doc shows no fields for an alias. So its comment lists all fields, in order, each with its
// type and meaning.
func TestAliases_ShowTheirFields(t *testing.T) {
	names := make(map[reflect.Type]string) // the names in embed
	for name, value := range aliased {
		names[reflect.TypeOf(value)] = name
	}
	fset, list := sources(t)
	for _, s := range list {
		if s.test() || s.dir != "embed" && !strings.HasPrefix(s.dir, "embed/") || strings.Contains(s.dir, "/internal") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Assign.IsValid() || !spec.Name.IsExported() {
				return true
			}
			value, ok := aliased[spec.Name.Name]
			if !ok {
				t.Errorf("%s: add a value of %s = %s to aliased in embed/types_test.go, which compares its fields with its comment", fset.Position(spec.Pos()), spec.Name.Name, types.ExprString(spec.Type))
				return true
			}
			if got, want := listed(spec.Doc.Text()), fields(reflect.TypeOf(value), names); got != want {
				t.Errorf("%s: the comment of %s lists the fields\n%s\nbut it has\n%s\nwrite each into the comment, indented, with // and its meaning", fset.Position(spec.Pos()), spec.Name.Name, got, want)
			}
			return true
		})
	}
}

// listed returns the fields that a comment lists with a meaning.
func listed(comment string) string {
	var b strings.Builder
	for line := range strings.Lines(comment) {
		if field, meaning, ok := strings.Cut(line, "//"); strings.HasPrefix(line, "\t") && ok && strings.TrimSpace(meaning) != "" {
			b.WriteString(strings.Join(strings.Fields(field), " ") + "\n")
		}
	}
	return b.String()
}

func fields(typ reflect.Type, names map[reflect.Type]string) string {
	var b strings.Builder
	if typ.Kind() != reflect.Struct {
		return ""
	}
	for f := range typ.Fields() {
		if !f.IsExported() {
			continue
		}
		name := f.Type.String()
		if alias, ok := names[f.Type]; ok {
			name = alias
		} else if f.Type.Kind() == reflect.Slice && names[f.Type.Elem()] != "" {
			name = "[]" + names[f.Type.Elem()]
		}
		b.WriteString(f.Name + " " + name + "\n")
	}
	return b.String()
}
