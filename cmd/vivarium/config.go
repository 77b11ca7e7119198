package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/vivarium-go/vivarium/embed"
	"github.com/vivarium-go/vivarium/embed/audit"
	"github.com/vivarium-go/vivarium/embed/backup/schedule"
	"github.com/vivarium-go/vivarium/embed/gateway"
	"github.com/vivarium-go/vivarium/internal/configfile"
)

// config is the content of a config file for serve: the keys of embed.ReadConfig, the gateway's,
// and those of the audit, of scheduled backups and of the admin handler.
type config struct {
	embed.Config `yaml:",inline"`
	Gateway      gateway.Config   `yaml:"gateway"`
	Journal      *audit.Config    `yaml:"audit"`  // nil: nothing is recorded
	Backup       *schedule.Config `yaml:"backup"` // nil: none
	Admin        *adminConfig     `yaml:"admin"`  // nil: nothing is answered over HTTP
}

// readConfig reads a config and validates it. The ID, Advertise and Name of own replace the file's,
// where they are set. The error has a line for each problem.
func readConfig(name string, own embed.Config) (c config, err error) {
	if c, err = parseConfig(name); err != nil {
		return c, err
	}
	c.ID, c.Advertise, c.Name = cmp.Or(own.ID, c.ID), cmp.Or(own.Advertise, c.Advertise), cmp.Or(own.Name, c.Name)
	var journal, backups, admins error
	if c.Journal != nil {
		journal = c.Journal.Validate()
	}
	if c.Backup != nil {
		backups = c.Backup.Validate()
	}
	if c.Admin != nil {
		admins = c.Admin.Validate()
	}
	return c, errors.Join(
		eachLine(name+": ", inKeys(c.Config.Validate())),
		eachLine(name+": gateway.", inKeys(c.Gateway.Validate())),
		eachLine(name+": audit.", inKeys(journal)),
		eachLine(name+": backup.", inKeys(backups)),
		eachLine(name+": admin.", inKeys(admins)),
		eachLine(name+": ", c.together()))
}

// together reports what the parts of a config must not be beside each other. All that refuses a
// config does so before the member starts: one that founds its directory fixes settings.
func (c *config) together() error {
	var errs []error
	inside := func(key, dir, why string) {
		if c.Dir != "" && dir != "" && within(resolved(dir), resolved(c.Dir)) {
			errs = append(errs, fmt.Errorf("%s is %q, in dir, %q: %s", key, dir, c.Dir, why))
		}
	}
	if c.Journal != nil {
		inside("audit.dir", c.Journal.Dir, "the member's directory is for nothing else")
	}
	if c.Backup != nil {
		inside("backup.dir", c.Backup.Dir, "a backup that is lost with what it is of is none")
	}
	return errors.Join(errs...)
}

// resolved returns the absolute name of a directory, without symbolic links as far as it exists.
func resolved(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	if parent := filepath.Dir(dir); parent != dir {
		return filepath.Join(resolved(parent), filepath.Base(dir))
	}
	return dir
}

// parseConfig reads a config and does not validate it.
func parseConfig(name string) (c config, err error) {
	file, err := os.Open(name)
	if err != nil {
		return c, err
	}
	defer file.Close()
	return c, eachLine(name+": ", configfile.Read(file, &c))
}

// eachLine puts a prefix before each line of an error.
func eachLine(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return errors.New(prefix + strings.ReplaceAll(err.Error(), "\n", "\n"+prefix))
}

// fields matches the fields of both Configs where an error of Validate names them.
var fields = regexp.MustCompile(`(?m)(^| )(` + strings.Join([]string{
	"Dir", "ID", "Members", "Join", "Advertise", "Name", "Zone", "Observer", "Ephemeral", "Voters", "DeadAfter", "Listen", "Ensemble", "Shards", "Tick", "RequestTimeout", "SessionTimeout", "MinSessionTimeout", "MaxSessionTimeout",
	"MaxDataSize", "MaxTreeSize", "ContainerCheckInterval", "SuperDigest", "HoldLevel", "Slow",
	`TLS(\.(CertFile|KeyFile|CAFile|Migrate|ClientCAFile|ClientCertRequired))?`,
	"ConnectionsPerAddress", "Connections", "Handshakes", "FrameSize", "Outstanding", "WatchBytes", "Watches", "Memory", "WriteTimeout", "FirstFrame", "ReadOnly", "Words", "Reconfig", "SASLUsers", "RequireSASL",
	"Size", `Keep(\.(Hourly|Daily|Weekly))?`, "Age", "Every",
	"TokensFile", "Hosts", "Page", "OpenProbes", "ZooKeeper",
}, "|") + `)\b`)

var identifier = regexp.MustCompile(`\w+`)

// inKeys writes the fields that an error names as the keys of the file: Dir as dir, TLS.CAFile as
// tls.caFile.
func inKeys(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(fields.ReplaceAllStringFunc(err.Error(), func(names string) string {
		return identifier.ReplaceAllStringFunc(names, key)
	}))
}

// key returns the key of a field: its name, with the first word in lower case.
func key(field string) string {
	letters := []rune(field)
	for i, c := range letters {
		if unicode.IsLower(c) || i > 0 && i+1 < len(letters) && unicode.IsLower(letters[i+1]) {
			break
		}
		letters[i] = unicode.ToLower(c)
	}
	return string(letters)
}
