package apiserver

import (
	"net/http"
	"net/netip"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/transfer"
)

// transferRoutes are those by which images come to hosts.
type transferRoutes struct{ *API }

func (a transferRoutes) add() {
	tag := "Link to hosts"
	hostRoute(a.API, route{method: "POST", path: fleet.RouteTransfers, id: "report-transfers", whose: forHosts,
		tag: tag, summary: "Tell which images a host holds, and learn where those are that it wants"},
		reflect.TypeFor[fleet.TransferReport](), reflect.TypeFor[fleet.TransferAnswer](), a.transfers)
	chunks := http.HandlerFunc(a.noChunks)
	if s := a.server.Transfers; s != nil {
		s.Server.Caller = func(r *http.Request) string { return callerOf(r.Context()).Host }
		chunks = s.Server.ServeHTTP
	}
	hostRoute(a.API, route{method: "GET", path: transfer.RouteIndex, id: "get-image-index", whose: forHosts, tag: tag,
		summary: "The index of an image: digest and size of each of its chunks"}, nil, nil, chunks)
	hostRoute(a.API, route{method: "GET", path: transfer.RouteHeld, id: "get-image-held", whose: forHosts, tag: tag,
		summary: "The pieces of an image that are here, a bit for each"}, nil, nil, chunks)
	hostRoute(a.API, route{method: "POST", path: transfer.RoutePiece, id: "get-image-piece", whose: forHosts, tag: tag,
		summary: "The chunks of a piece of an image",
		about: "The body has `index`, the digest of the index, and `pieces`, of which the server chooses one. The answer " +
			"is its chunks, packed by zstd; the header Grange-Piece says which it is. 503: others are given to now, or " +
			"other hosts got these pieces lately."}, reflect.TypeFor[map[string]any](), nil, chunks)
}

// describeChunks describes answers that are bytes.
func describeChunks(op *huma.Operation) {
	op.Parameters = []*huma.Param{{Name: "digest", In: "path", Required: true, Description: "of the image's file",
		Schema: &huma.Schema{Type: "string"}}}
	delete(op.Responses, "204")
	op.Responses["200"] = &huma.Response{Description: "Bytes", Content: map[string]*huma.MediaType{
		"application/octet-stream": {Schema: &huma.Schema{Type: "string", Format: "binary"}}}}
	for _, status := range []string{"400", "404", "409", "410", "503"} {
		op.Responses[status] = &huma.Response{Description: "No bytes, and why", Content: map[string]*huma.MediaType{
			"text/plain": {Schema: &huma.Schema{Type: "string"}}}}
	}
}

func (a transferRoutes) transfers(w http.ResponseWriter, r *http.Request) {
	if a.server.Transfers == nil {
		a.noChunks(w, r)
		return
	}
	in, err := read[fleet.TransferReport](r)
	if err != nil {
		a.hosts.answerHost(w, r, nil, err)
		return
	}
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	out, err := a.server.Transfers.Locate(callerOf(r.Context()).Host, from.Addr(), in, time.Now())
	a.hosts.answerHost(w, r, out, err)
}

func (a transferRoutes) noChunks(w http.ResponseWriter, r *http.Request) {
	a.hosts.answerHost(w, r, nil, &farm.Error{Kind: farm.NotFound, Code: transfer.CodeUnknown,
		Message: "this server has no images", Hint: "ask another one"})
}
