// Package configfile reads configs from YAML, strictly. A key that the config does not have is an
// error. Otherwise a misspelt key would leave its setting at the default. The same goes for a key
// without a value.
//
//	var c struct {
//		Dir string `yaml:"dir"`
//	}
//	err := configfile.Read(file, &c)
//
// The YAML library does the reading. Its errors speak of Go's types. Read translates them into the
// words of a file, with the line of each problem:
//
//	line 2: there is no key "directory"
//	line 4: want a duration such as 50ms, not `soon`
package configfile
