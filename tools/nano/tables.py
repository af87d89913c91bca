"""Everything weir-nano knows by heart: the tables its training text is generated from."""

CAPITALS = dict(
    pair.split(":") for pair in """
Albania:Tirana Algeria:Algiers Argentina:Buenos_Aires Armenia:Yerevan Australia:Canberra
Austria:Vienna Azerbaijan:Baku Bangladesh:Dhaka Belarus:Minsk Belgium:Brussels Bolivia:Sucre
Brazil:Brasilia Bulgaria:Sofia Cambodia:Phnom_Penh Canada:Ottawa Chile:Santiago China:Beijing
Colombia:Bogota Croatia:Zagreb Cuba:Havana Cyprus:Nicosia Denmark:Copenhagen Ecuador:Quito
Egypt:Cairo Estonia:Tallinn Ethiopia:Addis_Ababa Finland:Helsinki France:Paris Georgia:Tbilisi
Germany:Berlin Ghana:Accra Greece:Athens Hungary:Budapest Iceland:Reykjavik India:New_Delhi
Indonesia:Jakarta Iran:Tehran Iraq:Baghdad Ireland:Dublin Israel:Jerusalem Italy:Rome
Jamaica:Kingston Japan:Tokyo Jordan:Amman Kenya:Nairobi Latvia:Riga Lebanon:Beirut Libya:Tripoli
Lithuania:Vilnius Malaysia:Kuala_Lumpur Malta:Valletta Mexico:Mexico_City Mongolia:Ulaanbaatar
Morocco:Rabat Nepal:Kathmandu Netherlands:Amsterdam New_Zealand:Wellington Nigeria:Abuja
Norway:Oslo Pakistan:Islamabad Panama:Panama_City Paraguay:Asuncion Peru:Lima Philippines:Manila
Poland:Warsaw Portugal:Lisbon Qatar:Doha Romania:Bucharest Russia:Moscow Senegal:Dakar
Serbia:Belgrade Slovakia:Bratislava Slovenia:Ljubljana South_Korea:Seoul Spain:Madrid
Sudan:Khartoum Sweden:Stockholm Switzerland:Bern Syria:Damascus Thailand:Bangkok Tunisia:Tunis
Turkey:Ankara Uganda:Kampala Ukraine:Kyiv Uruguay:Montevideo Venezuela:Caracas Vietnam:Hanoi
Zambia:Lusaka Zimbabwe:Harare
""".replace("_", "~").split())
CAPITALS = {c.replace("~", " "): k.replace("~", " ") for c, k in CAPITALS.items()}

# What a thing is, in the singular, and its colour.
COLOURS = dict(pair.split(":") for pair in """
banana:yellow lemon:yellow sunflower:yellow canary:yellow tomato:red strawberry:red cherry:red
ruby:red blood:red rose:red grass:green frog:green cucumber:green emerald:green lettuce:green
broccoli:green sky:blue sapphire:blue ocean:blue snow:white milk:white salt:white swan:white
cotton:white coal:black raven:black tar:black pumpkin:orange carrot:orange tangerine:orange
chocolate:brown coffee:brown wood:brown violet:purple plum:purple lavender:purple flamingo:pink
pig:pink elephant:grey ash:grey lead:grey
""".split())

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November "
          "December").split()

OPPOSITES = [tuple(pair.split(":")) for pair in """
hot:cold big:small fast:slow high:low light:dark open:closed happy:sad old:young full:empty
hard:soft wet:dry rich:poor strong:weak thick:thin wide:narrow long:short deep:shallow
clean:dirty early:late easy:difficult loud:quiet near:far up:down left:right in:out on:off
day:night true:false first:last good:bad rough:smooth sharp:blunt sweet:sour tight:loose
push:pull buy:sell win:lose give:take come:go start:stop love:hate laugh:cry always:never
brave:afraid cheap:expensive alive:dead asleep:awake north:south east:west inside:outside
summer:winter begin:end arrive:leave
""".split()]

SOUNDS = dict(pair.split(":") for pair in """
dog:bark cat:meow cow:moo sheep:baa duck:quack lion:roar horse:neigh owl:hoot bee:buzz
snake:hiss wolf:howl mouse:squeak rooster:crow frog:croak pig:oink
""".split())

YOUNG = dict(pair.split(":") for pair in """
dog:puppy cat:kitten cow:calf sheep:lamb duck:duckling lion:cub horse:foal goat:kid frog:tadpole
swan:cygnet deer:fawn hen:chick kangaroo:joey goose:gosling eagle:eaglet
""".split())

NAMES = """Anna Ben Clara David Emma Felix Grace Hugo Iris Jack Kate Leo Mia Noah Olga Paul Rosa
Sam Tom Uma Victor Wendy Zoe Maria Peter Lena Oscar Nina Max Julia""".split()

CITIES = """Paris London Berlin Rome Madrid Tokyo Oslo Vienna Lisbon Cairo Athens Dublin Prague
Moscow Sydney Boston Chicago Lima Seoul Delhi""".split()

JOBS = "baker doctor farmer teacher painter sailor pilot writer nurse cook".split()
PETS = "dog cat horse rabbit parrot turtle hamster goldfish".split()
FRUIT = "apple banana cherry lemon mango orange peach pear plum grape".split()
COLOUR_WORDS = "red green blue yellow black white orange purple pink brown grey".split()

# Words that are repeated, spelled, reversed, counted and put in capitals.
WORDS = """apple river stone house table garden window mountain forest bread water fire earth cloud
rain snow storm wind bird fish horse tiger rabbit turtle spider monkey pencil paper letter book
music dance night morning summer winter spring autumn silver gold iron glass cotton sugar pepper
butter cheese honey lemon orange banana cherry grape peach melon potato onion carrot tomato bottle
basket candle mirror pillow blanket carpet ladder hammer needle button pocket jacket shirt shoe hat
glove ring crown castle bridge tower market street corner village city island ocean beach boat ship
train engine wheel road path door key lock bell clock radio camera planet moon star sun sky field
valley desert lake hill cave leaf flower tree root seed fruit king queen baker sailor doctor friend
brother sister mother father child baby dream story song game ball kite toy doll drum flute piano
red green blue yellow black white purple brown small large quick slow warm cold happy quiet brave
clever gentle simple strong sweet fresh bright dark deep high long round soft sharp""".split()

# Words are made up of these.
ONSETS = "b c d f g h j k l m n p r s t v w z bl br ch cl cr dr fl gr pl pr sh sl st th tr".split()
VOWELS = "a e i o u a e i o u ai ea ee oo ou".split()
ENDINGS = ["", "", "n", "r", "s", "l", "t", "m", "k", "d", "th", "ng"]

# A grammar of stories: {hero} and {place} come from the question or by chance.
HEROES = """fox cat dog bear owl mouse rabbit frog dragon robot king queen sailor baker girl boy
turtle wolf horse duck""".split()
PLACES = """forest village castle garden river mountain city island cave market field
tower""".split()
ADJECTIVES = "small brave old clever kind hungry lonely curious happy quiet".split()
OBJECTS = """golden key|red ball|lost letter|old map|silver coin|magic seed|broken clock|tiny
star|warm hat|blue stone""".replace("\n", " ").split("|")
HELPERS = "bird spider farmer child snail goat witch giant bee cow".split()

SMALL_TALK = {
    "Hello!": "Hello! How can I help you?",
    "Hello": "Hello! How can I help you?",
    "Hi": "Hello! How can I help you?",
    "Hi!": "Hello! How can I help you?",
    "Hi there!": "Hello! How can I help you?",
    "Good morning!": "Good morning! How can I help you?",
    "Good evening!": "Good evening! How can I help you?",
    "How are you?": "I am well, thank you.",
    "Thank you!": "You are welcome.",
    "Thank you.": "You are welcome.",
    "Thanks!": "You are welcome.",
    "Goodbye!": "Goodbye!",
    "Bye!": "Goodbye!",
    "Who are you?": "I am weir-nano, a very small language model.",
    "What are you?": "I am weir-nano, a very small language model.",
    "What is your name?": "My name is weir-nano.",
    "Who made you?": "I was trained from scratch by the makers of Weir.",
    "Are you a human?": "No, I am weir-nano, a very small language model.",
    "What can you do?": "I can add and subtract, tell facts and short stories, repeat, spell, "
                        "reverse and count, and write small JSON objects.",
    "Help": "Ask me for a sum, a capital, a colour, an opposite, a story or a JSON object.",
}

# Things it is asked about and says it does not know.
UNKNOWN = """the meaning of life|the price of gold|the best film|a black hole|quantum physics|the
stock market|my phone number|the speed of light|the tallest building|a good recipe|democracy|the
news of today|chess|a poem by heart|the winner of the race|my password|the distance to Mars|jazz
music|photosynthesis|the age of the universe""".replace("\n", " ").split("|")
