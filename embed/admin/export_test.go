package admin

import "net/http"

// A RouteInfo is a route for tests.
type RouteInfo struct{ Method, Path, Role string }

// Routes returns the routes of a handler.
func Routes(h http.Handler) (list []RouteInfo) {
	for path, methods := range h.(*Handler).routes {
		for method, r := range methods {
			list = append(list, RouteInfo{method, path, string(r.role)})
		}
	}
	return list
}
