package metadata

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/grange-project/grange/api/fleet"
)

// Headers of EC2's session tokens.
const (
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	lifeHeader  = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
)

// handler answers one bridge's VMs.
type handler struct {
	Options
	// neighbour returns the hardware address that an address has on the bridge.
	neighbour func(netip.Addr) (net.HardwareAddr, bool)
	tokens    tokens

	mu     sync.Mutex
	logged map[netip.Addr]bool // strangers
}

func newHandler(o Options, neighbour func(netip.Addr) (net.HardwareAddr, bool)) *handler {
	return &handler{Options: o, neighbour: neighbour, tokens: newTokens(), logged: map[netip.Addr]bool{}}
}

// ServeHTTP answers a VM. A stranger gets the same as who asks for what is not there.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	from := addressOf(r.RemoteAddr)
	vm, ok := h.caller(from)
	if !ok {
		h.stranger(from)
		http.NotFound(w, r)
		return
	}
	// A proxy in the VM may forward a request that somebody outside has sent (SSRF).
	if r.Header["X-Forwarded-For"] != nil || r.Header["Forwarded"] != nil {
		http.Error(w, "not through a proxy", http.StatusForbidden)
		return
	}
	if r.URL.Path == "/latest/api/token" {
		h.giveToken(w, r, vm)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
		return
	}
	if token := r.Header.Get(tokenHeader); (token != "" || h.RequireToken) && !h.tokens.good(token, vm.ID, time.Now()) {
		http.Error(w, "PUT /latest/api/token gives a token", http.StatusUnauthorized)
		return
	}
	content, kind, ok := answer(vm, r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// caller is the VM that leased the address, if it is its card that has it now.
func (h *handler) caller(from netip.Addr) (VM, bool) {
	vm, ok := h.Find(from)
	if !ok {
		return VM{}, false
	}
	mac, ok := h.neighbour(from)
	return vm, ok && bytes.Equal(mac, vm.MAC)
}

// maxStrangers bounds what is remembered of them.
const maxStrangers = 1000

// stranger logs an address once.
func (h *handler) stranger(from netip.Addr) {
	h.mu.Lock()
	known := h.logged[from] || len(h.logged) >= maxStrangers
	if !known {
		h.logged[from] = true
	}
	h.mu.Unlock()
	if !known {
		h.Log.Warn("metadata asked for by no VM of this bridge, or not from its card", "bridge", h.Bridge, "address",
			from.String())
	}
}

// giveToken answers PUT /latest/api/token.
func (h *handler) giveToken(w http.ResponseWriter, r *http.Request, vm VM) {
	if r.Method != http.MethodPut {
		w.Header().Set("Allow", "PUT")
		http.Error(w, "only PUT", http.StatusMethodNotAllowed)
		return
	}
	seconds, err := strconv.Atoi(r.Header.Get(lifeHeader))
	life := time.Duration(seconds) * time.Second
	if err != nil || life < time.Second || life > maxTokenLife {
		http.Error(w, lifeHeader+": 1 to 21600", http.StatusBadRequest)
		return
	}
	w.Header().Set(lifeHeader, strconv.Itoa(seconds))
	w.Header().Set("Content-Type", "text/plain")
	io.WriteString(w, h.tokens.make(vm.ID, time.Now().Add(life)))
}

// answer is what a VM gets at a path.
func answer(vm VM, path string) (content []byte, kind string, ok bool) {
	const text = "text/plain"
	switch path {
	case "/":
		return []byte(strings.Join(append([]string{"grange"}, versions...), "\n")), text, true
	case "/grange/v1/vm":
		content, err := json.MarshalIndent(fleet.Self{ID: vm.ID, Name: vm.Name, Project: vm.Project, Owner: vm.Owner,
			Hostname: vm.Hostname, Cell: vm.Cell, Host: vm.Host, Image: vm.Image, Shape: vm.Shape,
			Address: vm.Address.String(), MAC: vm.MAC.String(), Keys: vm.Keys, Tags: vm.Tags}, "", " ")
		return append(content, '\n'), "application/json", err == nil
	}
	version, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !isVersion(version) {
		return nil, "", false
	}
	if rest == "user-data" {
		return vm.UserData, "application/octet-stream", len(vm.UserData) > 0
	}
	listing, ok := lookup(ec2(vm), rest)
	return []byte(listing), text, ok
}
