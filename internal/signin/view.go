package signin

import (
	"bytes"
	"cmp"
	"html/template"
	"net/http"
	"net/url"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/wire"
)

// view is what the page shows.
type view struct {
	Next          string
	Message, Hint string // of what went wrong; "": nothing did
	Issuers       []link
}

// link is to an issuer.
type link struct{ To, Title string }

var page = template.Must(template.New("login").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in – grange</title>
<link rel="icon" href="/assets/grange.svg">
<link rel="stylesheet" href="/assets/style.css">
</head>
<body class="signin">
<main>
<h1>Sign in to grange</h1>
{{- if .Message}}
<div class="trouble" role="alert"><p>{{.Message}}</p>{{if .Hint}}<p class="hint">{{.Hint}}</p>{{end}}</div>
{{- end}}
{{- if .Issuers}}
<ul class="issuers">
{{- range .Issuers}}
<li><a class="button" href="{{.To}}">{{.Title}}</a></li>
{{- end}}
</ul>
{{- end}}
<form method="post" action="/auth/login">
<input type="hidden" name="next" value="{{.Next}}">
<p><label for="token">Token</label>
<input id="token" name="token" type="password" required autocomplete="off" spellcheck="false"
 aria-describedby="about"></p>
<p id="about" class="hint">One that <code>grange token create</code> printed; it begins with <code>grt_</code>.</p>
<p><button type="submit">Sign in</button></p>
</form>
</main>
</body>
</html>
`))

// policy lets the page load its style, and nothing else; nobody shows it in a frame.
const policy = "default-src 'none'; style-src 'self'; font-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; " +
	"frame-ancestors 'none'"

func (s *signin) show(w http.ResponseWriter, status int, v view) {
	for _, i := range s.Issuers.All() {
		to := url.URL{Path: startPath + i.Name, RawQuery: url.Values{"next": {v.Next}}.Encode()}
		v.Issuers = append(v.Issuers, link{to.String(), cmp.Or(i.Title, i.Name)})
	}
	var out bytes.Buffer
	if err := page.Execute(&out, v); err != nil {
		s.Log.Error("the page of the sign-in cannot be made", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	w.WriteHeader(status)
	if _, err := w.Write(out.Bytes()); err != nil {
		return // the browser has gone
	}
}

func statusOf(err *farm.Error) int { return wire.Problem(err, "").Status }
