"""Schemas of the kind that agents' tools have: made from OpenAPI documents, by the frameworks of
several languages, or written by hand. test_schemas.py asks for answers under each."""

STRING, INTEGER, NUMBER, BOOLEAN = ({"type": t} for t in ("string", "integer", "number", "boolean"))


def s(n=12, **more):
    return {"type": "string", "maxLength": n, **more}


def tool(required=None, **properties):
    return {"type": "object", "properties": properties,
            "required": list(properties) if required is None else required}


def pattern(p):
    return {"type": "string", "pattern": p}


COUNTRIES = [f"{chr(65 + i // 26)}{chr(65 + i % 26)}" for i in range(500)]
PET = {"type": "object", "discriminator": {"propertyName": "kind"}, "properties": {
    "kind": STRING, "name": s(6)}, "required": ["kind", "name"]}

TOOLS = {
    # ---- from OpenAPI 3.0 and 3.1
    "api nullable members": tool(
        ["id"], id={"type": "integer", "format": "int64", "minimum": 1, "maximum": 999},
        note={"type": "string", "nullable": True, "maxLength": 8, "example": "x"},
        parent={"nullable": True, "allOf": [{"type": "object", "properties": {
            "id": {"type": "integer", "maximum": 9, "minimum": 0}}}]}),
    "api discriminator with mapping": {
        "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
        "discriminator": {"propertyName": "kind", "mapping": {
            "cat": "#/components/schemas/Cat", "dog": "#/components/schemas/Dog"}},
        "components": {"schemas": {
            "Cat": {"type": "object", "required": ["kind", "lives"], "properties": {
                "kind": {"type": "string", "enum": ["cat"]},
                "lives": {"type": "integer", "minimum": 0, "maximum": 9}}},
            "Dog": {"type": "object", "required": ["kind", "barks"], "properties": {
                "kind": {"type": "string", "enum": ["dog"]}, "barks": BOOLEAN}}}}},
    "api inheritance by allOf": {
        "allOf": [{"$ref": "#/definitions/Pet"}, {"type": "object", "properties": {
            "lives": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 9}},
            "required": ["lives"]}], "definitions": {"Pet": PET}},
    "api two levels of allOf": {
        "allOf": [{"$ref": "#/definitions/Cat"}, {"properties": {"indoor": BOOLEAN}}],
        "definitions": {"Pet": PET, "Cat": {"allOf": [{"$ref": "#/definitions/Pet"}, {
            "properties": {"lives": {"type": "integer", "minimum": 1, "maximum": 9}}}]}}},
    "api query and body": tool(
        ["path", "body"],
        path=tool(petId={"type": "integer", "format": "int64", "minimum": 1, "maximum": 10**9}),
        query=tool([], limit={"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
                   cursor={"type": ["string", "null"], "maxLength": 8},
                   sort={"type": "string", "enum": ["name", "-name", "created", "-created"]}),
        body=tool(["name"], name=s(8, minLength=1), tags={
            "type": "array", "items": s(5), "maxItems": 3})),
    "api read and write only": tool(
        ["password"], id={"type": "string", "readOnly": True, "maxLength": 4},
        password={"type": "string", "writeOnly": True, "format": "password", "minLength": 8,
                  "maxLength": 12}, old={"type": "string", "deprecated": True, "maxLength": 3}),
    "api formats that only tell": tool(
        a={"type": "integer", "format": "int32", "minimum": 0, "maximum": 99},
        b={"type": "number", "format": "float", "minimum": 0, "maximum": 1},
        c=s(6, format="binary"), d=s(6, format="slug"), e=s(8, format="phone")),
    "api bytes": tool(data={"type": "string", "contentEncoding": "base64", "maxLength": 12,
                            "contentMediaType": "image/png"}),
    "api xml and examples": tool(
        name={"type": "string", "maxLength": 5, "xml": {"attribute": True}, "examples": ["a"]},
        x={"type": "integer", "x-order": 3, "minimum": 0, "maximum": 9,
           "externalDocs": {"url": "https://example.com"}}),
    "api exclusive bounds of 3.1": tool(
        p={"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        n={"type": "integer", "exclusiveMinimum": 0, "maximum": 65535}),
    "api map with a least number": {"type": "object", "minProperties": 1, "maxProperties": 3,
                                    "additionalProperties": s(5)},
    "api map of lists": {"type": "object", "maxProperties": 2, "additionalProperties": {
        "type": "array", "items": s(4), "maxItems": 2}},
    "api problem": tool(["title", "status"], type={"type": "string", "format": "uri-reference"},
                        title=s(8), status={"type": "integer", "minimum": 100, "maximum": 599}),
    "api money": tool(amount=pattern(r"^-?\d{1,9}\.\d{2}$"),
                      currency={"type": "string", "minLength": 3, "maxLength": 3,
                                "pattern": "^[A-Z]{3}$"}),
    "api json patch": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"oneOf": [
        tool(op={"enum": ["add", "replace", "test"]}, path={"type": "string", "format": "json-pointer"},
             value={"type": ["string", "number", "boolean", "null"], "maxLength": 4}),
        tool(op={"const": "remove"}, path=pattern("^(/[^/~]{1,5}){1,3}$")),
        tool(op={"enum": ["move", "copy"]}, path=pattern("^/"), **{"from": pattern("^/")})]}},

    # ---- tools of agents
    "tool read file": tool(["path"], path=s(20, minLength=1), offset={
        "type": "integer", "minimum": 0}, limit={"type": "integer", "exclusiveMinimum": 0}),
    "tool edits": tool(path=s(10), edits={"type": "array", "minItems": 1, "maxItems": 2, "items": tool(
        old_text=s(9), new_text=s(9))}, dry_run={"type": "boolean", "default": False}),
    "tool shell": tool(["command"], command={
        "type": "array", "items": s(8, minLength=1), "minItems": 1, "maxItems": 4},
        timeout_ms={"type": "integer", "minimum": 1, "maximum": 600000, "multipleOf": 100}),
    "tool search": tool(["query"], query=s(15, minLength=1), regex=BOOLEAN, include={
        "type": "array", "items": pattern(r"^[\w.*/-]{1,10}$"), "maxItems": 2},
        depth={"type": ["integer", "null"], "minimum": 0, "maximum": 10}),
    "tool browser": tool(["action"], action={"type": "string", "enum": [
        "click", "type", "scroll", "wait", "screenshot"]}, coordinate={
        "type": "array", "prefixItems": [INTEGER, INTEGER], "items": False, "minItems": 2,
        "maxItems": 2}, text=s(8)),
    "tool browser, by action": {"type": "object", "required": ["action"], "properties": {
        "action": {"enum": ["click", "type"]}, "x": INTEGER, "text": s(6)}, "allOf": [
        {"if": {"properties": {"action": {"const": "click"}}}, "then": {"required": ["x"]}},
        {"if": {"properties": {"action": {"const": "type"}}}, "then": {"required": ["text"]}}]},
    "tool mail": tool(["to", "subject"], to={"type": "array", "minItems": 1, "maxItems": 2, "items": {
        "type": "string", "format": "email"}}, subject=s(12), body=s(12), at={
        "anyOf": [{"type": "string", "format": "date-time"}, {"type": "null"}], "default": None}),
    "tool sql with parameters": tool(sql=s(14), params={"type": "array", "maxItems": 3, "items": {
        "type": ["string", "number", "boolean", "null"], "maxLength": 4}}),
    "tool http": tool(
        ["url", "method"], url={"type": "string", "format": "uri", "pattern": "^https?://"},
        method={"enum": ["GET", "POST", "PUT", "PATCH", "DELETE"]}, headers={
            "type": "object", "additionalProperties": s(6), "maxProperties": 2},
        timeout={"type": "number", "exclusiveMinimum": 0, "maximum": 300}),
    "tool weather": tool(["location"], location=s(10, description="City, e.g. \"Paris\""), unit={
        "type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}),
    "tool without arguments": {"type": "object", "properties": {}},
    "tool without arguments, closed": {"type": "object", "properties": {},
                                       "additionalProperties": False},
    "tool of no type": {"properties": {"q": s(5)}, "required": ["q"]},
    "tool with a thought": tool(thought=s(12), next_thought_needed=BOOLEAN, thought_number={
        "type": "integer", "minimum": 1, "maximum": 20}, revises={"type": "integer", "minimum": 1,
                                                                  "maximum": 20}),
    "tool graph": tool(entities={"type": "array", "maxItems": 2, "items": tool(
        name=s(5), entityType=s(5), observations={"type": "array", "items": s(5), "maxItems": 2})}),
    "tool calendar": tool(["start", "zone"], start={"type": "string", "format": "date-time"}, end={
        "type": "string", "format": "date-time"}, zone=pattern(r"^[A-Z][a-z]+/[A-Z][a-z_]+$"),
        days={"type": "array", "items": {"enum": [0, 1, 2, 3, 4, 5, 6]}, "uniqueItems": True,
              "maxItems": 7}),
    "tool issue": tool(["title"], title=s(8, minLength=1), labels={
        "type": "array", "items": s(5), "maxItems": 3}, milestone={
        "oneOf": [{"type": "integer", "minimum": 1, "maximum": 99}, {"type": "null"}]},
        assignees={"type": "array", "items": pattern("^[a-z](?:[a-z0-9-]{0,8}[a-z0-9])?$"),
                   "maxItems": 2}),
    "tool blocks": {"$ref": "#/$defs/block", "$defs": {
        "text": tool(type={"const": "text"}, text=s(5)),
        "list": tool(type={"const": "list"}, items={"type": "array", "maxItems": 2, "items": {
            "$ref": "#/$defs/block"}}),
        "block": {"anyOf": [{"$ref": "#/$defs/text"}, {"$ref": "#/$defs/list"}]}}},
    "tool filter tree": {"$ref": "#/$defs/filter", "$defs": {"filter": {"oneOf": [
        {**tool(field=s(4), op={"enum": ["eq", "ne", "gt", "lt"]}, value={
            "type": ["string", "number"], "maxLength": 4}), "additionalProperties": False},
        {**tool(**{"and": {"type": "array", "minItems": 1, "maxItems": 2, "items": {
            "$ref": "#/$defs/filter"}}}), "additionalProperties": False},
        {**tool(**{"not": {"$ref": "#/$defs/filter"}}), "additionalProperties": False}]}}},
    "tool expression": {"$defs": {"e": {"anyOf": [NUMBER, tool(
        op={"enum": ["+", "-", "*", "/"]}, left={"$ref": "#/$defs/e"}, right={"$ref": "#/$defs/e"})]}},
        **tool(expression={"$ref": "#/$defs/e"})},
    "tool organisation": {"definitions": {"person": tool(["name"], name=s(5), reports={
        "type": "array", "items": {"$ref": "#/definitions/person"}, "maxItems": 2})},
        "$ref": "#/definitions/person"},

    # ---- enumerations and constants
    "enum of 500": {"type": "string", "enum": COUNTRIES},
    "enum of 500 in a list": tool(countries={"type": "array", "items": {"enum": COUNTRIES},
                                            "minItems": 1, "maxItems": 3}),
    "enum of mixed types": {"enum": ["auto", 0, 1, 2.5, True, None, [], {"x": 1}]},
    "enum of numbers": {"type": "number", "enum": [0.25, 0.5, 1, 2]},
    "enum with an empty text": {"type": "string", "enum": ["", "asc", "desc"]},
    "enum and null beside nullable": {"type": "string", "nullable": True, "enum": ["a", "b", None]},
    "const of a false": tool(ok={"const": False}, n={"const": 0}, e={"const": ""}),
    "enum of texts that look otherwise": {"enum": ["1", "true", "null", "{}", "\"", "\\", "\n"]},
    "enum of names beside others": {"anyOf": [{"enum": ["small", "large"]}, pattern("^[0-9]{2,4}px$")]},

    # ---- patterns
    "pattern of words": pattern(r"\bfoo\b"),
    "pattern of words at the end": pattern(r"^[a-z ]{0,9}end\b"),
    "pattern of one of several words": pattern(r"\b(?:yes|no|maybe)\b"),
    "pattern of words inside": pattern(r"^the\b [a-z]+\b$"),
    "pattern of letters": pattern(r"^\p{L}{1,8}$"),
    "pattern of capitals and digits": pattern(r"^\p{Lu}\p{Ll}+-\p{Nd}{2}$"),
    "pattern of letters in a class": pattern(r"^[\p{L}\p{M}' -]{1,12}$"),
    "pattern of none but letters": pattern(r"^\P{L}{1,4}$"),
    "pattern with a group around it all": pattern(r"(^$|^[a-z]{1,5}$)"),
    "pattern of an option that is empty": pattern(r"^$|^\+[1-9]\d{1,14}$"),
    "pattern of a password": pattern(r"^(?=.*[A-Z])(?=.*[a-z])(?=.*\d)[A-Za-z\d]{8,12}$"),
    "pattern that forbids a word": pattern(r"^(?!admin$)[a-z]{1,8}$"),
    "pattern of a host": pattern(r"^(?:[a-z0-9](?:[a-z0-9-]{0,10}[a-z0-9])?\.)+[a-z]{2,6}$"),
    "pattern of an id": pattern("^(cus|sub|inv)_[A-Za-z0-9]{14}$"),
    "pattern of a semver": pattern(r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([\da-z-]+(?:\.[\da-z-]+)*))?$"),
    "pattern of a cron": pattern(r"^(\*|[0-5]?\d)( (\*|[0-5]?\d)){4}$"),
    "pattern of an arn": pattern(r"^arn:aws(-[\w]+)*:[a-z0-9-]{1,9}:[a-z]{2}-[a-z]{4,9}-\d:\d{12}:[\w/-]{1,9}$"),
    "pattern of a label": {"type": "string", "maxLength": 12, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"},
    "pattern of a mime type": pattern(r"^[a-z]+/[a-z0-9.+-]+$"),
    "pattern of a data uri": pattern(r"^data:image/(png|jpeg);base64,[A-Za-z0-9+/]{4,8}={0,2}$"),
    "pattern of a time": pattern(r"^([01]\d|2[0-3]):[0-5]\d$"),
    "pattern of not blank": pattern(r"\S"),
    "pattern of no blanks at the ends": pattern(r"^\S(.{0,6}\S)?$"),
    "pattern case by hand": pattern(r"^[Yy][Ee][Ss]$"),
    "pattern with flags": pattern(r"(?i)^yes$"),
    "pattern with look-behind": pattern(r"(?<=a)b"),

    # ---- objects and lists
    "environment variables": {"type": "object", "patternProperties": {"^[A-Z_][A-Z0-9_]*$": s(5)},
                              "additionalProperties": False, "maxProperties": 3},
    "extensions beside members": {"type": "object", "properties": {"name": s(4)}, "required": ["name"],
                                  "patternProperties": {"^x-": True}, "additionalProperties": False},
    "labels": {"type": "object", "additionalProperties": s(4), "maxProperties": 2,
               "propertyNames": {"pattern": "^[a-z]{1,5}$"}},
    "at least one of two": {**tool([], id=s(4), name=s(4)), "anyOf": [
        {"required": ["id"]}, {"required": ["name"]}]},
    "exactly one of two": {**tool([], id=s(4), name=s(4)), "additionalProperties": False, "oneOf": [
        {"required": ["id"]}, {"required": ["name"]}]},
    "not both of two": {**tool([], id=s(4), name=s(4)), "additionalProperties": False,
                        "not": {"required": ["id", "name"]}},
    "least number of members": {**tool([], a=INTEGER, b=INTEGER, c=INTEGER), "minProperties": 2,
                                "additionalProperties": False},
    "matrix": {"type": "array", "minItems": 2, "maxItems": 2, "items": {
        "type": "array", "minItems": 2, "maxItems": 2, "items": {
            "type": "number", "minimum": -1, "maximum": 1}}},
    "polygon": {"type": "array", "minItems": 4, "maxItems": 5, "items": {
        "type": "array", "prefixItems": [{"type": "number", "minimum": -180, "maximum": 180}, {
            "type": "number", "minimum": -90, "maximum": 90}], "minItems": 2, "maxItems": 2}},
    "ids": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string",
                                                                     "format": "uuid"}},
    "addresses": {"type": "array", "minItems": 2, "maxItems": 3, "items": {"anyOf": [
        {"type": "string", "format": "ipv4"}, {"type": "string", "format": "ipv6"},
        {"type": "string", "format": "hostname"}]}},
    "tags without doubles": {"type": "array", "items": s(5), "uniqueItems": True, "maxItems": 3},
    "items of an old draft": {"$schema": "http://json-schema.org/draft-04/schema#", "type": "array",
                              "items": [INTEGER, s(3)], "additionalItems": False, "minItems": 2},
    "bounds of an old draft": {"$schema": "http://json-schema.org/draft-04/schema#",
                               "type": "integer", "minimum": 0, "exclusiveMinimum": True,
                               "maximum": 10, "id": "http://example.com/x"},
    "defaults everywhere": tool([], a={"default": 3, "type": "integer"}, b={"default": {}, **tool(
        [], c={"type": "string", "default": "", "maxLength": 3})}),
    "nothing but a description": {"description": "Anything at all."},
    "members of every type": tool(a=s(3), b=INTEGER, c=NUMBER, d=BOOLEAN, e={"type": "null"}, f={
        "type": "array", "items": {}, "maxItems": 1}, g={"type": "object", "maxProperties": 1}),
    "members with odd names": tool(**{"a b": INTEGER, "a.b": INTEGER, "$a": INTEGER, "": INTEGER,
                                      "日本": INTEGER, "a\"b": INTEGER, "type": INTEGER}),
    "nested 40": {},  # below
    "wide": tool([], **{f"field_{i}": {"type": ["string", "null"], "maxLength": 3} for i in range(120)}),
}

deep = BOOLEAN
for i in range(40):
    deep = tool(child=deep) if i % 2 else {"anyOf": [{"$ref": "#/$defs/leaf"}, deep]}
TOOLS["nested 40"] = {**deep, "$defs": {"leaf": {"const": 1}}}
