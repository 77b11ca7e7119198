package admin

import (
	files "embed"
	"io/fs"
	"net/http"
	"path"
)

// pagePolicy lets the page load what is served beside it, and nothing else. What a znode holds
// cannot become markup or a script.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// pageTypes are the types of the page's files. Those of the system may be others.
var pageTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

//go:embed page
var pageFiles files.FS

// page serves a file of the page, and reports whether there is one of that name. The files are the
// same for everybody and tell nothing, so nobody has to say who asks; what they then ask for does.
func (c *call) page(name string) bool {
	if name == "/" {
		name = "/index.html"
	}
	text, err := fs.ReadFile(pageFiles, path.Join("page", name))
	if err != nil {
		return false
	}
	header := c.w.Header()
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Referrer-Policy", "no-referrer")
	c.send(http.StatusOK, pageTypes[path.Ext(name)], text)
	return true
}
