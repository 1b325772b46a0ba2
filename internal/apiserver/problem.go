package apiserver

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/grange-project/grange/api"
	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// problem is api.Problem with the places of a request that were wrong.
type problem struct {
	Type   string  `json:"type" doc:"\"grange:\" and the code that docs/errors.md explains"`
	Title  string  `json:"title" doc:"the kind of error"`
	Status int     `json:"status"`
	Detail string  `json:"detail" doc:"what happened"`
	Hint   string  `json:"hint,omitempty" doc:"what to try"`
	Places []place `json:"errors,omitempty" doc:"what is wrong with the request, and where"`
}

// place is one thing that is wrong with a request.
type place struct {
	Location string `json:"location" doc:"as body.keys[0], query.limit, path.vm"`
	Message  string `json:"message"`
}

// Error, GetStatus and ContentType are what huma asks of an error.
func (p *problem) Error() string             { return p.Detail }
func (p *problem) GetStatus() int            { return p.Status }
func (p *problem) ContentType(string) string { return "application/problem+json" }

// newProblem makes an error fit for people far away: what is not a farm.Error says nothing of our inside. Whoever calls
// logs it.
func newProblem(err error) *problem {
	if !errors.As(err, new(*farm.Error)) {
		err = &farm.Error{Kind: farm.Internal, Code: farm.CodeInternal, Message: "internal error",
			Hint: "the server's log says more"}
	}
	return fromAPI(wire.Problem(err, "the server's log"))
}

func fromAPI(p *api.Problem) *problem {
	return &problem{Type: p.Type, Title: p.Title, Status: p.Status, Detail: p.Detail, Hint: p.Hint}
}

// plainProblem puts what huma refuses into our form: the first wrong place is in the sentence, all are in the list.
// Values are left out: they may be secrets.
func plainProblem(_ huma.Context, _ string, v any) (any, error) {
	m, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	e := &farm.Error{Kind: farm.Invalid, Code: farm.CodeBadRequest, Message: m.Detail,
		Hint: "docs/reference/openapi.json says what this route takes"}
	if m.Status >= http.StatusInternalServerError {
		e = &farm.Error{Kind: farm.Internal, Code: farm.CodeInternal, Message: "internal error",
			Hint: "the server's log says more"}
	}
	p := newProblem(e)
	p.Status = m.Status
	for _, d := range m.Errors {
		p.Places = append(p.Places, place{d.Location, d.Message})
	}
	if len(p.Places) > 0 {
		p.Detail = p.Places[0].Location + ": " + p.Places[0].Message
		if more := len(p.Places) - 1; more > 0 {
			p.Detail += ", and " + strconv.Itoa(more) + " more"
		}
	}
	return p, nil
}

// write answers with a problem where huma is not reached.
func (p *problem) write(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}
