package signin

import (
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/oidc"
)

// tripCookie holds what a browser takes with it to an issuer and back. Nothing is kept on the server, so that nobody
// can fill it, and the browser may come back to it after a restart. It is not signed: by its name, pages of this server
// alone can set it, and with one of its own making a browser gets no further than with one of ours.
const tripCookie = "__Host-grange-trip"

// tripTime is how long a sign-in at an issuer may take, in seconds.
const tripTime = 10 * 60

// luggage is what is in the cookie.
type luggage struct {
	Trip oidc.Trip
	Next string
}

// Lax: the issuer's answer comes from another site.
func setCookie(w http.ResponseWriter, text string, age int) {
	http.SetCookie(w, &http.Cookie{Name: tripCookie, Value: text, Path: "/", MaxAge: age, Secure: true, HttpOnly: true,
		SameSite: http.SameSiteLaxMode})
}

func setTrip(w http.ResponseWriter, l luggage) {
	text, err := json.Marshal(l)
	if err != nil {
		panic(err) // it is text alone
	}
	setCookie(w, base64.RawURLEncoding.EncodeToString(text), tripTime)
}

func clearTrip(w http.ResponseWriter) { setCookie(w, "", -1) }

// tripOf is what a browser brought back.
func tripOf(r *http.Request) (l luggage, err error) {
	c, err := r.Cookie(tripCookie)
	if err == nil {
		var text []byte
		if text, err = base64.RawURLEncoding.DecodeString(c.Value); err == nil {
			err = json.Unmarshal(text, &l)
		}
	}
	if err != nil || l.Trip.State == "" {
		return luggage{}, lost("this browser did not begin a sign-in here, or that was more than ten minutes ago")
	}
	return l, nil
}

func lost(message string) error {
	return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown, Message: message,
		Hint: "begin again, on this page; cookies of this server must be allowed"}
}

// check holds what came back, by the path of an issuer, against what the browser took with it.
func (l luggage) check(q url.Values, issuer string) error {
	switch {
	case subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(l.Trip.State)) != 1:
		return lost("this is the answer to another sign-in")
	case issuer != l.Trip.Issuer:
		return lost("this is the answer of another issuer")
	case q.Has("error"):
		said := q.Get("error")
		if more := q.Get("error_description"); more != "" {
			said += ": " + more
		}
		return &farm.Error{Kind: farm.Denied, Code: farm.CodeNotKnown,
			Message: "issuer " + l.Trip.Issuer + " did not sign you in: " + farm.Printable(short(said)),
			Hint:    "begin again, or ask who runs the issuer"}
	case q.Get("code") == "":
		return lost("the issuer sent no code")
	}
	return nil
}

// short is so much of an issuer's text as is shown.
func short(text string) string {
	if runes := []rune(text); len(runes) > 200 {
		return string(runes[:200]) + "…"
	}
	return text
}
